"""Packs the constant weights of matmuls into panels at compile time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from compiler.ir.arrays import allocate, as_constant, values_of
from compiler.passes.cpu.shared.register_tile import panel_width
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, is_weight, rewrite_functions
from compiler.passes.pack.tied import TiedTables, digest, rows_of_panels
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import op_name


def pack_panels(weight: np.ndarray, width: int) -> np.ndarray:
    """[K, N] as [ceil(N/width), K, width], the last panel filled with zeros."""
    depth, columns = weight.shape
    full, rest = divmod(columns, width)
    panels = allocate((full + (rest > 0), depth, width), weight.dtype)
    panels[:full] = weight[:, : full * width].reshape(depth, full, width).transpose(1, 0, 2)
    if rest:
        panels[full, :, :rest] = weight[:, full * width :]
        panels[full, :, rest:] = 0
    return panels


@dataclass(frozen=True)
class PackMatmul(ModulePass):
    """Rewrites float32 `matmul(x, constant [K, N])` into a tensor program over packed panels. Rows
    of a table that is also the weight of a matmul are read from its panels, so that it is there
    once. A single column stays as it is: its products are sums along K, in vectors of K.
    """

    unit: VectorUnit
    name = "pack_matmul"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        rewriter = _Rewriter(module, self.unit)
        rewriter.tied = TiedTables(rewriter, module)
        return rewrite_functions(rewriter)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, unit: VectorUnit) -> None:
        super().__init__(module)
        self.unit = unit
        self.packed: dict[Any, Any] = {}
        self.tied: TiedTables

    def rewrite(self, call: Any) -> Any:
        if op_name(call) != "relax.matmul":
            return self._rows(call)
        left, right = call.args[0], self.constant_of(call.args[1])
        if not is_weight(right) or str(left.ty.dtype) != "float32" or left.ty.ndim < 2:
            return call
        columns = right.value.shape[1]
        if columns == 1:
            return self.builder_.call_te(
                _column_matmul,
                left,
                as_constant(values_of(right).reshape(-1)),
                primfunc_name_hint="column_matmul",
                primfunc_attrs=FUSABLE,
            )
        return self.builder_.call_te(
            _panel_matmul,
            left,
            self._panels(right),
            columns,
            panel_width(self.unit, columns),
            primfunc_name_hint="panel_matmul",
            primfunc_attrs=FUSABLE,
        )

    def _panels(self, right: Any) -> Any:
        """The panels of a weight; layers that share one share them, and so do tied tables."""
        key = right.__hash__()
        if key not in self.packed:
            weight = values_of(right)
            panels = self._tied(weight.T)
            if panels is None:
                panels = as_constant(pack_panels(weight, panel_width(self.unit, weight.shape[1])))
            self.packed[key] = (right, panels)
        return self.packed[key][1]

    def _tied(self, table: np.ndarray) -> Any:
        """The panels of a tied table, None for any other."""
        key = digest(table) if table.shape in self.tied.shapes else b""
        if key not in self.tied.digests:
            return None
        if key not in self.packed:
            panels = pack_panels(table.T, panel_width(self.unit, len(table)))
            self.packed[key] = (table, as_constant(panels))
        return self.packed[key][1]

    def _rows(self, call: Any) -> Any:
        """A read of rows from the panels of the table if it is tied, else the call."""
        table = self.tied.table_read(call)
        panels = None if table is None else self._tied(table)
        if table is None or panels is None:
            return call
        return self.builder_.call_te(
            rows_of_panels,
            call.args[1].fields[1],
            panels,
            len(table),
            primfunc_name_hint="rows_of_panels",
        )


def _column_matmul(left: Any, column: Any) -> Any:
    *lead, depth = left.shape
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*lead, tvm.tirx.IntImm("int64", 1)),
        lambda *index: te.sum(left(*index[:-1], k) * column[k], axis=k),
        name="matmul",
    )


def _panel_matmul(left: Any, panels: Any, columns: int, width: int) -> Any:
    *lead, depth = left.shape
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*lead, tvm.tirx.IntImm("int64", columns)),
        lambda *index: te.sum(
            left(*index[:-1], k) * panels[index[-1] // width, k, index[-1] % width], axis=k
        ),
        name="matmul",
    )
