"""Matmuls with symbolic extents."""

from typing import Any

import numpy as np
from tvm import relax

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math.reduce import or_identity
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes.extents import Extent
from compiler.tir.exprs import op_name

_HALF_PRECISION = ("float16", "bfloat16")


def matmul(b: Builder, x: Value, y: Value) -> Value:
    """numpy's matmul: the last two axes multiplied, those before broadcast; a vector is a row
    (left) or column (right).
    """
    if not x.shape or not y.shape:
        raise ImportFailed("matmul takes no scalars", reason="shape")
    if (
        isinstance(x, Known)
        and isinstance(y, Known)
        and not x.symbolic
        and not y.symbolic
        and max(x.data.size, y.data.size) <= 4096
    ):
        return Known(np.matmul(x.data, y.data).astype(x.data.dtype), x.dtype)
    left = layout.unsqueeze(b, x, [0]) if len(x.shape) == 1 else x
    right = layout.unsqueeze(b, y, [1]) if len(y.shape) == 1 else y
    inner = b.same(
        left.shape[-1],
        right.shape[-2],
        f"matmul of {list(map(str, x.shape))} and {list(map(str, y.shape))}: inner extents differ",
    )
    result = _multiply(b, left, right, inner)
    if len(x.shape) == 1 or len(y.shape) == 1:
        shape = [
            *result.shape[:-2],
            *([] if len(x.shape) == 1 else [result.shape[-2]]),
            *([] if len(y.shape) == 1 else [result.shape[-1]]),
        ]
        return layout.reshape(b, result, shape)
    return result


def _multiply(b: Builder, left: Value, right: Value, inner: Extent) -> Value:
    batch = broadcast.joined_shape(b, left.shape[:-2], right.shape[:-2], what="matmul's batch axes")
    shape, dtype = [*batch, left.shape[-2], right.shape[-1]], left.dtype
    weights = _float32_softmax(b, left) if dtype in _HALF_PRECISION else None
    if weights is not None:
        left, right = weights, ew.cast(b, right, "float32")
    p = _batched(b, left, batch, (left.shape[-2], inner))
    q = _batched(b, right, batch, (inner, right.shape[-1]))
    tensors = [b.tensor(value) for value in (p, q)]
    exact = [
        b.adopt(tensor.expr, value.shape).expr
        for tensor, value in zip(tensors, (p, q), strict=True)
    ]
    # Sums of 16-bit floats lose digits; cast once at the end, they are what every other engine
    # gives.
    call = relax.op.matmul(*exact, out_dtype="float32" if dtype in _HALF_PRECISION else None)
    return ew.cast(b, or_identity(b, b.emit(call, shape), "sum", inner), dtype)


def _float32_softmax(b: Builder, value: Value) -> Value | None:
    """`value` without the cast of a float32 softmax that it comes from; None where it has none.

    Attention's weights lose more by that cast than by all that follows. Rows of nothing but
    masked scores, replaced by a constant, may stand between.
    """
    expr = None if isinstance(value, Known) else _float32_softmax_expr(b, value.expr)
    return None if expr is None else b.adopt(expr, value.shape)


def _float32_softmax_expr(b: Builder, expr: relax.Expr) -> relax.Expr | None:
    bound = _call(b, expr)
    if op_name(bound) == "relax.where" and not isinstance(bound.args[1], relax.Var):
        inner = _float32_softmax_expr(b, bound.args[2])
        if inner is None:
            return None
        other = b.emit(relax.op.astype(bound.args[1], "float32")).expr
        return b.emit(relax.op.where(bound.args[0], other, inner)).expr
    if op_name(bound) != "relax.astype" or op_name(_call(b, bound.args[0])) != "relax.nn.softmax":
        return None
    return bound.args[0] if str(bound.args[0].ty.dtype) == "float32" else None


def _call(b: Builder, expr: relax.Expr) -> Any:
    return b.bb.lookup_binding(expr) if isinstance(expr, relax.Var) else None


def _batched(
    b: Builder, value: Value, batch: tuple[Extent, ...], matrix: tuple[Extent, Extent]
) -> Value:
    """The operand with its matrix extents restated and its batch axes expanded where run time
    decides their broadcast.
    """
    offset = len(batch) - (len(value.shape) - 2)
    mine = value.shape[:-2]
    settled = all(
        b.facts.same(e, 1) is True or b.facts.same(e, batch[axis + offset]) is True
        for axis, e in enumerate(mine)
    )
    if not settled:
        return broadcast.expand(b, value, [*batch[offset:], *matrix], "broadcast")
    if isinstance(value, Known):
        return value
    restated = [
        e if b.facts.same(e, 1) is True else batch[axis + offset] for axis, e in enumerate(mine)
    ]
    return b.adopt(value.expr, [*restated, *matrix])
