"""Attention over heads [batch, heads, length, size]: splitting, joining and sharing them, and the
weighted sum of values.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from tvm import relax, te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def restate(b: Builder, x: Value, shape: Sequence[Extent], what: str) -> Value:
    """The value with its shape required to be `shape` and written so."""
    for axis, (have, want) in enumerate(zip(x.shape, shape, strict=True)):
        b.same(have, want, f"{what}: axis {axis} is {have} and must be {want}")
    buffer = b.buffers.get(x.expr) if isinstance(x, Tensor) else None
    if buffer is None or not buffer.bytes or x is buffer.storage:
        return b.adopt(b.tensor(x).expr, shape)
    # The model's rows are shorter than what holds them.
    stored = b.adopt(b.tensor(x).expr, buffer.storage_shape(shape))
    return replace(stored, shape=(*stored.shape[:-1], b.facts.simplify(shape[-1])))


def split_heads(b: Builder, x: Value, heads: int) -> Value:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, hidden = x.shape
    b.require(
        ex.equal(ex.floormod(hidden, heads), 0),
        f"{hidden} columns do not divide into {heads} heads",
    )
    size = b.facts.simplify(ex.floordiv(hidden, heads))
    if isinstance(size, int):
        return layout.transpose(b, layout.reshape(b, x, [batch, length, heads, size]), [0, 2, 1, 3])
    shape = [ex.prim(extent) for extent in (batch, heads, length, size)]

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(
            shape, lambda n, h, s, d: data(n, s, h * ex.prim(size) + d), name="split_heads"
        )

    return b.te(compute, x, name="split_heads")


def join_heads(b: Builder, x: Value) -> Value:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, heads, length, size = x.shape
    hidden = b.facts.simplify(ex.mul(heads, size))
    return layout.reshape(b, layout.transpose(b, x, [0, 2, 1, 3]), [batch, length, hidden])


def share_heads(b: Builder, x: Value, heads: Extent) -> Value:
    """Each of the heads of [batch, heads, length, size] repeated in place until there are
    `heads`.
    """
    batch, own, length, size = x.shape
    if b.facts.same(own, heads) is True:
        return x
    b.require(
        ex.both(ex.greater(own, 0), ex.equal(ex.floormod(heads, own), 0)),
        f"{heads} query heads do not share {own} heads",
    )
    if isinstance(own, int) and isinstance(heads, int):
        # In the form of exporters, through which attention reads the heads where they lie.
        apart = layout.unsqueeze(b, x, [2])
        repeated = broadcast.expand(b, apart, [batch, own, heads // own, length, size])
        return layout.reshape(b, repeated, [batch, heads, length, size])
    shape = [ex.prim(extent) for extent in (batch, heads, length, size)]

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(
            shape,
            lambda n, h, s, d: data(n, tirx.floordiv(h * ex.prim(own), ex.prim(heads)), s, d),
            name="share_heads",
        )

    return b.te(compute, x, name="share_heads")


def scale_query(b: Builder, query: Value, scale: float | None) -> Value:
    """The query times `scale`, by default one over the root of the head size."""
    size = b.facts.simplify(query.shape[-1])
    if scale is None and not isinstance(size, int):
        return ew.divide(b, query, norm.sqrt(b, b.tensor(ew.cast(b, Known.of(size), query.dtype))))
    if scale is None:
        scale = 1 / math.sqrt(max(size, 1))
    return ew.multiply(b, query, norm.constant(scale, query.dtype))


def query_times_key(b: Builder, query: Value, key: Value) -> Value:
    """query @ key^T of [batch, heads, length, size] each."""
    return linear.matmul(b, query, layout.transpose(b, key, [0, 1, 3, 2]))


def soft_capped(b: Builder, scores: Value, cap: float) -> Value:
    """cap * tanh(scores / cap), the scores themselves where cap is 0."""
    if cap == 0:
        return scores
    limit = norm.constant(cap, scores.dtype)
    return ew.multiply(b, ew.unary(b, ew.divide(b, scores, limit), relax.op.tanh), limit)


def weights(b: Builder, scores: Value, seeing: Value | None, precision: str) -> Value:
    """Softmax over the last axis, worked out in `precision`; rows where `seeing` is false are
    zeros.
    """
    result = ew.cast(b, norm.softmax(b, ew.cast(b, scores, precision), 3), scores.dtype)
    return zero_unseen(b, result, seeing)


def zero_unseen(b: Builder, x: Value, seeing: Value | None) -> Value:
    """The rows of x where `seeing` bool[.., rows, 1] holds, zeros elsewhere."""
    return x if seeing is None else ew.where(b, seeing, x, norm.constant(0, x.dtype))
