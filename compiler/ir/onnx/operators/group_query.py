"""GroupQueryAttention of ONNX Runtime's own domain: attention over a cache that each batch entry
fills to its own length.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.onnx.cache_inputs import note_cache
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.operators.microsoft_attention import (
    SHARED,
    Parts,
    attend_biased,
    pieces,
    refuse_others,
)
from compiler.ir.onnx.registry import op
from compiler.ir.ops.attention import attention as at
from compiler.ir.ops.attention import rotary
from compiler.ir.ops.attention.bias import Sight
from compiler.ir.ops.shape import caches, indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_ATTRIBUTES = SHARED | {
    "kv_num_heads", "do_rotary", "rotary_interleaved", "local_window_size",
    "smooth_softmax", "causal", "qk_norm_epsilon", "kv_cache_bit_width",
}  # fmt: skip


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(b: Builder, node: Node) -> list[Value | None]:
    """Causal attention over a cache that each batch entry fills to its own length; the cache with
    the new keys and values.
    """
    refuse_others(node, 12, _ATTRIBUTES, 3)
    if node.has(9):
        node.fail(
            "position_ids are not supported",
            reason="unsupported_form",
            hint="leave them out: positions follow from seqlens_k",
        )
    if not node.attr("causal", 1):
        node.fail(
            "attention that is not causal is not supported here",
            reason="unsupported_form",
            hint="use MultiHeadAttention",
        )
    parts = _grouped(b, node)
    batch, _, rows, _ = parts.query.shape
    total: Extent = node.known_extents(6, "total_sequence_length").scalars()[0]  # type: ignore[assignment]
    b.require(
        ex.greater_equal(total, rows), "total_sequence_length is less than the number of new tokens"
    )
    past = node.optional(3)
    note_cache(b, node, batch, rows, 0 if past is None else past.shape[2], total)
    last = layout.reshape(b, node.value(5), [batch])
    _check_lengths(b, last, rows, total)
    lengths = b.te(lambda ends: _ends(ends, batch, rows, total), last, name="lengths")
    if node.attr("do_rotary", 0):
        parts = _turned(b, node, parts, lengths)
    keys, values = (
        _cached(b, node.optional(index), x, lengths, total)
        for index, x in ((3, parts.key), (4, parts.value))
    )
    window = node.attr("local_window_size", -1)
    sight = Sight(0, window - 1 if window > 0 else None, 0, lengths)
    result = attend_biased(
        b, node, replace(parts, key=keys, value=values), sight, None, node.optional(10), _sink(node)
    )
    return [at.join_heads(b, result), keys, values]


def _sink(node: Node) -> Value | None:
    """[heads]: what each head's softmax counts beside the scores; smooth_softmax is a
    score of 0.
    """
    if node.has(11) or not node.attr("smooth_softmax", 0):
        return node.optional(11)
    dtype = node.value(0).dtype
    return Known(np.zeros(node.attr("num_heads"), np.dtype(dtype)), dtype)


def _grouped(b: Builder, node: Node) -> Parts:
    heads, groups, query = node.attr("num_heads"), node.attr("kv_num_heads"), node.value(0)
    if node.has(1):
        key, value = node.value(1), node.value(2)
    else:
        size = b.facts.simplify(ex.floordiv(query.shape[2], heads + 2 * groups))
        query, key, value = pieces(
            b, query, [ex.mul(heads, size), ex.mul(groups, size), ex.mul(groups, size)]
        )
    parts = Parts(
        at.split_heads(b, query, heads),
        at.split_heads(b, key, groups),
        at.split_heads(b, value, groups),
    )
    batch, _, rows, size = parts.query.shape
    key, value = (
        at.restate(b, x, [batch, groups, rows, size], "the new keys and values")
        for x in (parts.key, parts.value)
    )
    return replace(parts, key=key, value=value)


def _check_lengths(b: Builder, last: Value, rows: Extent, total: Extent) -> None:
    """Require that the new rows of every entry end within the total and begin at or after its
    start.
    """
    first = tirx.EQ(ex.prim(rows), ex.prim(total))

    def compute(ends: te.Tensor) -> te.Tensor:
        def value(n: Any, which: Any) -> Any:
            end = ends(n).astype("int64")
            return tirx.Select(
                tirx.Or(first, tirx.EQ(which, ex.prim(0))), end, end - ex.prim(rows) + 1
            )

        return te.compute([ex.prim(last.shape[0]), ex.prim(2)], value, name="places")

    ends = b.te(compute, last, name="places")
    indexing.check_within(
        b, ends, 0, total, f"seqlens_k leaves a row outside of total_sequence_length, {total}"
    )


def _ends(last: te.Tensor, batch: Extent, rows: Extent, total: Extent) -> te.Tensor:
    """int64[batch]: keys in each entry once the new ones are in; the first call puts all rows in,
    padding too.
    """
    first = tirx.EQ(ex.prim(rows), ex.prim(total))
    return te.compute(
        [ex.prim(batch)],
        lambda n: tirx.Select(first, ex.prim(rows), last(n).astype("int64") + 1),
        name="lengths",
    )


def _turned(b: Builder, node: Node, parts: Parts, lengths: Value) -> Parts:
    batch, _, rows, _ = parts.query.shape
    shape = [ex.prim(batch), ex.prim(rows)]
    positions = b.te(
        lambda end: te.compute(shape, lambda n, s: end(n) - ex.prim(rows) + s, name="positions"),
        lengths,
        name="positions",
    )
    cos, sin = (rotary.angles(b, node.value(index), positions) for index in (7, 8))
    turn = rotary.Rotation(cos, sin, bool(node.attr("rotary_interleaved", 0)))
    return replace(
        parts, query=rotary.rotate(b, parts.query, turn), key=rotary.rotate(b, parts.key, turn)
    )


def _cached(b: Builder, past: Value | None, now: Value, lengths: Value, total: Extent) -> Value:
    """[batch, groups, columns, size]: the past with the new rows put before each entry's end."""
    batch, groups, _, size = now.shape
    buffer = b.buffers.get(past.expr) if isinstance(past, Tensor) else None
    if buffer is not None:
        rows = buffer.storage.shape[2]
        shape = buffer.storage_shape([batch, groups, rows, size])
        buffer.storage = b.tensor(at.restate(b, buffer.storage, shape, "the past"))
        return caches.write_rows(b, buffer, now, lengths, total)
    if past is not None:
        past = at.restate(b, past, [batch, groups, past.shape[2], size], "the past")
    room = 0 if past is None else past.shape[2]
    (columns,) = b.extents([ex.maximum(room, total)], "present")
    return caches.append(b, past, now, lengths, columns)
