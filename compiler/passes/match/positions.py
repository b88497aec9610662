"""The positions of its operands that an operator computes each position of its result from.

An operator computes positions by themselves if position i of its result needs position i of some
operands, along one axis of each, and all of the other operands.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from compiler.passes.match.operator_kinds import ELEMENTWISE, REDUCTIONS
from compiler.tir.exprs import as_int, op_name

Axes = list[int | None]
"""For each operand the axis whose positions are those of the result, None where all is read."""


def operands_of(call: Any) -> list[Any]:
    """The tensors that a call reads, those of a tuple one by one."""
    if op_name(call) == "relax.call_tir":
        return list(call.args[1].fields)
    if op_name(call) == "relax.concat" and isinstance(call.args[0], relax.Tuple):
        return list(call.args[0].fields)
    return list(call.args)


def operand_axes(call: Any, axis: int) -> Axes | None:
    """By operand, in the order of `operands_of`, the axis that the positions along an axis of the
    result come from; None if the operator does not compute them by themselves, or is not known to.
    """
    name = op_name(call)
    if name in ELEMENTWISE:
        return _elementwise(call, axis)
    if name in REDUCTIONS:
        return _reduction(call, axis)
    rule = _RULES.get(name or "")
    return None if rule is None else rule(call, axis)


def same(lhs: Any, rhs: Any) -> bool:
    """True if two extents are known to be equal."""
    return bool(tvm.sym.Analyzer().can_prove_equal(lhs, rhs))


def extents(value: Any) -> list[Any] | None:
    """The extents of a tensor, None where they are not known."""
    shape = getattr(value.ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def _elementwise(call: Any, axis: int) -> Axes | None:
    result = extents(call)
    axes: Axes = []
    for operand in call.args:
        if not isinstance(operand.ty, relax.TensorType):
            return None
        own = extents(operand)
        if own is None or result is None:
            return None
        own_axis = axis - (len(result) - len(own))
        if own_axis < 0 or as_int(own[own_axis]) == 1:
            axes.append(None)
        elif same(own[own_axis], result[axis]):
            axes.append(own_axis)
        else:
            return None
    return axes


def _reduction(call: Any, axis: int) -> Axes | None:
    if call.attrs.axis is None:
        return None
    rank = call.args[0].ty.ndim
    gone = {int(one) % rank for one in call.attrs.axis}
    own_axis = axis if call.attrs.keepdims else [i for i in range(rank) if i not in gone][axis]
    return None if own_axis in gone else [own_axis]


def _matmul(call: Any, axis: int) -> Axes | None:
    """Rows of a matmul are those of its left side."""
    left, right = call.args
    rows = left.ty.ndim - 2
    # An axis of a batch may come of either side.
    return [rows, None] if right.ty.ndim >= 2 and axis == call.ty.ndim - 2 and rows >= 0 else None


def _along_another(call: Any, axis: int) -> Axes | None:
    """Operators over one axis, which compute all others by themselves."""
    return None if int(call.attrs.axis) % call.ty.ndim == axis else [axis]


def _norm(call: Any, axis: int) -> Axes | None:
    rank = call.ty.ndim
    over = {int(one) % rank for one in call.attrs.axes}
    return None if axis in over else [axis, *(None for _ in call.args[1:])]


def _permuted(call: Any, axis: int) -> Axes | None:
    rank = call.ty.ndim
    order = call.attrs.axes
    return [rank - 1 - axis if order is None else int(order[axis]) % rank]


def _reshape(call: Any, axis: int) -> Axes | None:
    """An axis that stays, between axes that may be joined or split."""
    before, after = extents(call.args[0]), extents(call)
    if before is None or after is None:
        return None
    ahead = _count(after[:axis])
    for own_axis, extent in enumerate(before):
        if same(extent, after[axis]) and same(_count(before[:own_axis]), ahead):
            return [own_axis, None] if len(call.args) == 2 else [own_axis]
    return None


def _count(of: Sequence[Any]) -> Any:
    total: Any = tvm.tirx.const(1, "int64")
    for extent in of:
        total = total * extent
    return total


def _slice(call: Any, axis: int) -> Axes | None:
    """A slice of other axes."""
    cut = [as_int(one) for one in getattr(call.args[1], "fields", [])]
    if not cut or None in cut or any(one is not None and one % call.ty.ndim == axis for one in cut):
        return None
    return [axis, *(None for _ in call.args[1:])]


def _join(call: Any, axis: int) -> Axes | None:
    if not isinstance(call.args[0], relax.Tuple) or int(call.attrs.axis) % call.ty.ndim == axis:
        return None
    return [axis for _ in call.args[0].fields]


_RULES: dict[str, Callable[[Any, int], Axes | None]] = {
    "relax.matmul": _matmul,
    "relax.nn.softmax": _along_another,
    "relax.nn.log_softmax": _along_another,
    "relax.nn.layer_norm": _norm,
    "relax.nn.rms_norm": _norm,
    "relax.permute_dims": _permuted,
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.strided_slice": _slice,
    "relax.concat": _join,
}
