"""Keeps the results of one-dimensional convolutions as images of height 1 up to the next
convolution.

The importer writes a convolution over [N, C, W] as one over [N, C, 1, W] followed by a squeeze.
This pass moves elementwise operators, reductions and concatenations in front of the squeeze, which
then meets the expand_dims of the next convolution and cancels.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.operator_kinds import ELEMENTWISE, REDUCTIONS
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name

HEIGHT = 2
"""The axis of [N, C, H, W] that rows do not have."""
ROW = 3
"""The rank of rows; an operator with an operand of a higher rank does not give rows."""


@dataclass(frozen=True)
class RowsAsImages(ModulePass):
    """Moves operators on squeezed images in front of the squeeze."""

    name = "rows_as_images"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        rewritten = rewrite_functions(_Rewriter(module))
        return tvm.transform.Sequential(
            [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
        )(rewritten)


def _squeezed(row: Any) -> Any:
    return relax.op.squeeze(row, [HEIGHT])


def _fits_rows(operand: Any) -> bool:
    """True if an operand is known to have no more axes than rows have, or is no tensor."""
    return not isinstance(operand.ty, relax.TensorType) or 0 <= operand.ty.ndim <= ROW


def _over(axis: int) -> int:
    """The axis of an image that an axis of its row becomes."""
    return axis % 3 if axis % 3 < HEIGHT else HEIGHT + 1


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def rewrite(self, call: Any) -> Any:
        name = op_name(call)
        operands = (
            list(call.args[0].fields)
            if name == "relax.concat" and isinstance(call.args[0], relax.Tuple)
            else list(call.args)
        )
        # Operators on rows that come from no image are left alone.
        if not any(self._image(operand) is not None for operand in operands):
            return call
        if name == "relax.expand_dims" and [int(axis) for axis in call.attrs.axis] == [HEIGHT]:
            return self._image(operands[0])
        if name in ELEMENTWISE and all(map(_fits_rows, operands)):
            emitted = relax.Call(
                call.op, [self._as_image(operand) for operand in operands], call.attrs, call.ty_args
            )
            return _squeezed(self.builder_.emit(emitted))
        if (
            name == "relax.concat"
            and call.attrs.axis is not None
            and all(operand.ty.ndim == 3 for operand in operands)
        ):
            return _squeezed(
                self.builder_.emit(
                    relax.op.concat(
                        [self._as_image(one) for one in operands], _over(int(call.attrs.axis))
                    )
                )
            )
        return self._reduction(call, name) if name in REDUCTIONS else call

    def _image(self, expr: Any) -> Any:
        """The image [N, C, 1, W] where `expr` is its row, else None."""
        bound = self.value_of(expr)
        if (
            op_name(bound) != "relax.squeeze"
            or bound.args[0].ty.ndim != 4
            or bound.attrs.axis is None
        ):
            return None
        return bound.args[0] if [int(axis) % 4 for axis in bound.attrs.axis] == [HEIGHT] else None

    def _as_image(self, expr: Any) -> Any:
        """`expr`, which broadcasts against rows, in a shape that broadcasts against images."""
        image = self._image(expr)
        if image is not None:
            return image
        rank = expr.ty.ndim if isinstance(expr.ty, relax.TensorType) else 0
        if rank < 2:
            return expr
        # A constant is reshaped here: an expand_dims on it would not be folded any more.
        constant = self.constant_of(expr)
        if constant is not None:
            shape = list(constant.value.shape)
            return relax.const(
                constant.value.numpy().reshape([*shape[:-1], 1, shape[-1]]), str(expr.ty.dtype)
            )
        return self.builder_.emit(relax.op.expand_dims(expr, [rank - 1]))

    def _reduction(self, call: Any, name: str) -> Any:
        axes = (
            [0, 1, 3]
            if call.attrs.axis is None
            else sorted(_over(int(axis)) for axis in call.attrs.axis)
        )
        reduced = self.builder_.emit(REDUCTIONS[name](self._image(call.args[0]), axes, True))
        return (
            _squeezed(reduced)
            if call.attrs.keepdims
            else relax.op.squeeze(reduced, sorted({HEIGHT, *axes}))
        )
