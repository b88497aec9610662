"""Packs the constant weights of matmuls into panels at compile time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from compiler.passes.cpu.shared.register_tile import panel_width
from compiler.passes.framework.base import Phase
from compiler.passes.graph.rewriting import (
    FUSABLE,
    constant_of,
    is_weight,
    rewrite_functions,
    with_simple_shape,
)
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import op_name


def pack_panels(weight: np.ndarray, width: int) -> np.ndarray:
    """[K, N] as [ceil(N/width), K, width], the last panel filled with zeros."""
    depth, columns = weight.shape
    padded = np.zeros((depth, -(-columns // width) * width), weight.dtype)
    padded[:, :columns] = weight
    return np.ascontiguousarray(padded.reshape(depth, -1, width).transpose(1, 0, 2))


@dataclass(frozen=True)
class PackMatmul:
    """Rewrites float32 `matmul(x, constant [K, N])` into a tensor program over packed panels."""

    unit: VectorUnit
    name = "pack_matmul"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module, self.unit), module)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, unit: VectorUnit) -> None:
        super().__init__(module)
        self.unit = unit
        self.packed: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if op_name(call) != "relax.matmul":
            return call
        left, right = call.args[0], constant_of(self, call.args[1])
        if not is_weight(right) or str(left.ty.dtype) != "float32" or left.ty.ndim < 2:
            return call
        weight = right.value.numpy()
        columns = weight.shape[1]
        key = right.__hash__()
        width = panel_width(self.unit, columns)
        # Layers that share a weight share its panels.
        if key not in self.packed:
            self.packed[key] = (right, relax.const(pack_panels(weight, width)))
        rows = with_simple_shape(self, left)
        return self.builder_.call_te(
            _panel_matmul,
            rows,
            self.packed[key][1],
            columns,
            width,
            primfunc_name_hint="panel_matmul",
            primfunc_attrs=FUSABLE,
        )


def _panel_matmul(left: Any, panels: Any, columns: int, width: int) -> Any:
    *lead, depth = left.shape
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*lead, tvm.tirx.IntImm("int64", columns)),
        lambda *at: te.sum(left(*at[:-1], k) * panels[at[-1] // width, k, at[-1] % width], axis=k),
        name="matmul",
    )
