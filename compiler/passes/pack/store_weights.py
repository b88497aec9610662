"""Stores weights that `RoundWeights` rounded as block-wise quantized weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.ir.ops.quantized.block_matmul import (
    KERNEL_NAMES,
    ROWS,
    Blocks,
    dequantize,
    matmul_program,
    rows_program,
)
from compiler.ir.ops.quantized.quantize_weights import (
    BITS,
    objection,
    quantize_table,
    recover_table,
)
from compiler.ir.weights import LEAST
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, is_weight, rewrite_functions
from compiler.passes.pack.round_weights import RoundWeights
from compiler.passes.pack.tied import table_of_rows
from compiler.tir.exprs import op_name
from relaxd.contract.options import WeightForm

_EXACT = 1e-6
"""A scale is found again up to a rounding of float32."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StoreWeights(ModulePass):
    """Rewrites matmuls by constants that the form holds exactly, and reads of their rows, into
    programs over block-wise quantized weights, as importers write those of `MatMulNBits`.

    calibrated: whether scales may be others than those of rounding to nearest.
    """

    form: WeightForm
    calibrated: bool = False
    name = "store_weights"
    phase = Phase.PACK

    @classmethod
    def of(cls, earlier: RoundWeights) -> "StoreWeights":
        """For what that pass leaves."""
        return cls(earlier.form, earlier.calibrated)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module, self))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, options: StoreWeights) -> None:
        super().__init__(module)
        self.module, self.options, self.bits = module, options, BITS[options.form]
        self.tables: dict[tuple[int, bool], tuple[Any, Blocks | None]] = {}

    def rewrite(self, call: Any) -> Any:
        if op_name(call) == "relax.matmul":
            return self._matmul(call)
        return self._rows(call)

    def _matmul(self, call: Any) -> Any:
        left, right = call.args[0], self.constant_of(call.args[1])
        if not is_weight(right) or str(left.ty.dtype) != "float32" or left.ty.ndim < 2:
            return call
        table = self._table(right, transposed=True)
        if table is None:
            return call
        return self.builder_.call_te(
            lambda x, *tensors: matmul_program(table, x.shape[:-1])(x, *tensors),
            left,
            *(relax.const(tensor.data) for tensor in table.tensors),
            primfunc_name_hint=KERNEL_NAMES[self.bits, False],
            primfunc_attrs=FUSABLE,
        )

    def _rows(self, call: Any) -> Any:
        constant = table_of_rows(self, self.module, call)
        table = None if constant is None else self._table(constant, transposed=False)
        if table is None:
            return call
        return self.builder_.call_te(
            lambda index, *tensors: rows_program(table, index.shape)(index, *tensors),
            call.args[1].fields[1],
            *(relax.const(tensor.data) for tensor in table.tensors),
            primfunc_name_hint=ROWS[self.bits],
        )

    def _table(self, constant: Any, *, transposed: bool) -> Blocks | None:
        """The constant in blocks, None where they do not hold it exactly."""
        key = constant.__hash__(), transposed
        if key not in self.tables:
            array = constant.value.numpy()
            blocks = exact_table(array.T if transposed else array, self.options)
            self.tables[key] = constant, blocks
        return self.tables[key][1]


def exact_table(table: Array, options: StoreWeights) -> Blocks | None:
    """A matrix [columns, depth] in blocks that hold it exactly, None where none do."""
    if table.size < LEAST or objection(table, options.form):
        return None
    bits = BITS[options.form]
    if options.calibrated:
        return recover_table(table, bits, _EXACT)
    blocks = quantize_table(table, bits)
    return blocks if np.allclose(dequantize(blocks), table, rtol=_EXACT, atol=0) else None
