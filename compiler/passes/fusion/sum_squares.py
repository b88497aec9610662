"""Makes one program of a sum or mean of squares: FuseOps joins nothing in front of a reduction, so
that the squares would be written to memory and read again.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import as_int, op_name

_NAMES = {"relax.sum": "sum_squares", "relax.mean": "mean_squares"}


@dataclass(frozen=True)
class SumSquares(ModulePass):
    """Replaces sums and means of `x * x`, as in RMS norms and variances, by programs that read
    `x`.
    """

    name = "sum_squares"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def rewrite(self, call: Any) -> Any:
        squared = self._square(call.args[0]) if op_name(call) in _NAMES else None
        if squared is None:
            return call
        name = _NAMES[op_name(call)]
        return self.builder_.call_te(_program(call, name), squared, primfunc_name_hint=name)

    def _square(self, value: Any) -> Any:
        """The tensor of which `value` has the squares, None where it has none."""
        square = self.value_of(value)
        if op_name(square) != "relax.multiply" or not square.args[0].same_as(square.args[1]):
            return None
        shape = square.ty.shape
        # TVM has an answer of its own for no elements.
        has_elements = isinstance(shape, relax.ShapeExpr) and all(
            as_int(axis) != 0 for axis in shape.values
        )
        return square.args[0] if has_elements else None


def _program(call: Any, name: str) -> Any:
    axes = None if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]

    def reduced(x: te.Tensor) -> te.Tensor:
        total = topi.sum(topi.multiply(x, x), axes, bool(call.attrs.keepdims))
        if name == "sum_squares":
            return total
        count = prod(x.shape[axis] for axis in (range(len(x.shape)) if axes is None else axes))
        return topi.divide(total, tirx.Cast(x.dtype, count))

    return reduced
