"""Attention of ONNX Runtime's own domain: Attention, MultiHeadAttention and GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.registry import op
from compiler.ir.ops import attention as at
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import layout, linear, rotary
from compiler.ir.ops.attention_bias import Sight, bias
from compiler.ir.ops.nn_norm import wide
from compiler.ir.values import Value


@dataclass(frozen=True)
class Parts:
    """Query, keys and values as [batch, heads, length, size]."""

    query: Value
    key: Value
    value: Value


@op("Attention", domain=MICROSOFT)
def attention(b: Builder, node: Node) -> list[Value | None]:
    """Input times weights plus bias, split into query, keys and values; attention over them and the past; the present."""
    _refuse(node, inputs=(6,), attributes=("do_rotary", "past_present_share_buffer"))
    heads, x, table = node.attr("num_heads"), node.value(0), node.value(1)
    joined = linear.matmul(b, x, table)
    joined = ew.add(b, joined, node.value(2)) if node.has(2) else joined
    third = b.facts.simplify(ex.floordiv(joined.shape[2], 3))
    sizes = node.attr("qkv_hidden_sizes", [third, third, third])
    parts = Parts(*(at.split_heads(b, piece, heads) for piece in _pieces(b, joined, sizes)))
    if node.has(4):
        past = node.value(4)
        halves = [layout.reshape(b, layout.strided_slice(b, past, 0, i, i + 1, 1), past.shape[1:]) for i in range(2)]
        parts = Parts(parts.query, _extended(b, halves[0], parts.key), _extended(b, halves[1], parts.value))
    result = _attend(b, node, parts, _padding(b, node, 3, parts), node.optional(5))
    present = None
    if node.wants(1):
        present = layout.concat(b, [layout.unsqueeze(b, part, [0]) for part in (parts.key, parts.value)], 0)
    return [at.join_heads(b, result), present]


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(b: Builder, node: Node) -> list[Value | None]:
    """Attention of given query, keys and values, with their bias and past; the present keys and values."""
    _refuse(node, inputs=(8, 9), outputs=(3,))
    if any(len(node.value(index).shape) != 3 for index in range(3)):
        node.fail("packed or split inputs are not supported", reason="unsupported_form", hint="give query, key and value three axes each")
    inputs = [node.value(index) for index in range(3)]
    if node.has(3):
        inputs = [ew.add(b, x, piece) for x, piece in zip(inputs, _pieces(b, node.value(3), [x.shape[2] for x in inputs]), strict=True)]
    parts = Parts(*(at.split_heads(b, x, node.attr("num_heads")) for x in inputs))
    if node.has(6):
        parts = Parts(parts.query, _extended(b, node.value(6), parts.key), _extended(b, node.value(7), parts.value))
    result = _attend(b, node, parts, _padding(b, node, 4, parts), node.optional(5))
    return [at.join_heads(b, result), parts.key, parts.value]


def _refuse(node: Node, inputs: tuple[int, ...] = (), attributes: tuple[str, ...] = (), outputs: tuple[int, ...] = ()) -> None:
    """Fail where one of these is used."""
    used = [f"input {i}" for i in inputs if node.has(i)] + [name for name in attributes if node.attr(name, 0) not in (0, "", "NONE")]
    used += [f"output {i}" for i in outputs if node.wants(i)]
    if used:
        node.fail(f"{used[0]} is not supported", reason="unsupported_form", hint="export the model without it")


def _pieces(b: Builder, x: Value, sizes: list[Extent]) -> list[Value]:
    """The last axis cut into pieces of these sizes, which it must hold exactly."""
    last = len(x.shape) - 1
    b.same(x.shape[last], ex.total(sizes), "query, keys and values do not fill what they are cut from")
    starts = [ex.total(sizes[:i]) for i in range(len(sizes))]
    return [layout.strided_slice(b, x, last, start, ex.add(start, size), 1) for start, size in zip(starts, sizes, strict=True)]


def _extended(b: Builder, past: Value, now: Value) -> Value:
    batch, heads, _, size = now.shape
    return layout.concat(b, [at.restate(b, past, [batch, heads, past.shape[2], size], "the past"), now], 2)


def _padding(b: Builder, node: Node, index: int, parts: Parts) -> Value | None:
    """float[batch, 1, 1 or rows, keys]: mask_filter_value where the mask is 0, or beyond the length that it gives."""
    if not node.has(index):
        return None
    mask, keys, dtype = node.value(index), parts.key.shape[2], wide(parts.query.dtype)
    batch, _, rows, _ = parts.query.shape
    if len(mask.shape) not in (1, 2, 3):
        node.fail("masks of this rank are not supported", reason="unsupported_form", hint="use a mask of [batch, keys]")
    per_row = len(mask.shape) == 3
    shape = {1: [batch], 2: [batch, keys], 3: [batch, rows, keys]}[len(mask.shape)]
    for have, want in zip(mask.shape, shape, strict=True):
        b.same(have, want, f"the mask has an axis of {have} where {want} is needed")

    def compute(data: te.Tensor) -> te.Tensor:
        def value(n: Any, _: Any, i: Any, j: Any) -> Any:
            seen = j < data(n).astype("int64") if len(mask.shape) == 1 else (data(n, i, j) if per_row else data(n, j)) > 0
            return tirx.Select(seen, tirx.const(0, dtype), tirx.const(node.attr("mask_filter_value", -10000.0), dtype))

        return te.compute([ex.prim(e) for e in (batch, 1, rows if per_row else 1, keys)], value, name="padding")

    return b.te(compute, mask, name="padding")


def _attend(b: Builder, node: Node, parts: Parts, padding: Value | None, added: Value | None) -> Value:
    past = ex.sub(parts.key.shape[2], parts.query.shape[2])
    sight = Sight(b.facts.simplify(past), right=0 if node.attr("unidirectional", 0) else None)
    return _weighted(b, node, parts, sight, padding, added)


def _weighted(b: Builder, node: Node, parts: Parts, sight: Sight, padding: Value | None, added: Value | None) -> Value:
    """softmax(query @ key^T * scale + padding + added, as far as it sees) @ value, in the query's dtype."""
    dtype = wide(parts.query.dtype)
    batch, heads, _, size = parts.query.shape
    key = at.restate(b, parts.key, [batch, parts.key.shape[1], parts.key.shape[2], size], "attention's keys")
    value = at.restate(b, parts.value, [*key.shape[:3], parts.value.shape[3]], "attention's values")
    key, value = (at.share_heads(b, ew.cast(b, x, dtype), heads) for x in (key, value))
    scores = at.product(b, at.scaled(b, ew.cast(b, parts.query, dtype), node.attr("scale", 0.0) or None), key)
    scores = at.soft_capped(b, scores, node.attr("softcap", 0.0))
    for addend in (padding, bias(b, scores, added, sight)):
        scores = scores if addend is None else ew.add(b, scores, ew.cast(b, addend, dtype))
    return ew.cast(b, linear.matmul(b, at.weights(b, scores, None, dtype), value), parts.query.dtype)


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(b: Builder, node: Node) -> list[Value | None]:
    """Causal attention over a cache that each batch entry fills to its own length; the cache with the new keys and values."""
    _refuse(node, (9, 11, 12, 13, 14, 15), ("smooth_softmax", "k_quant_type", "v_quant_type", "qk_output"), (3,))
    if not node.attr("causal", 1):
        node.fail("attention that is not causal is not supported here", reason="unsupported_form", hint="use MultiHeadAttention")
    parts = _grouped(b, node)
    batch, _, rows, _ = parts.query.shape
    total: Extent = node.known(6, "total_sequence_length", low=0).scalars()[0]  # type: ignore[assignment]
    b.require(ex.greater_equal(total, rows), "total_sequence_length is less than the number of new tokens")
    lengths = b.te(lambda last: _ends(last, batch, rows, total), layout.reshape(b, node.value(5), [batch]), name="lengths")
    if node.attr("do_rotary", 0):
        parts = _turned(b, node, parts, lengths)
    keys, values = (_cached(b, node.optional(index), x, lengths, total) for index, x in ((3, parts.key), (4, parts.value)))
    window = node.attr("local_window_size", -1)
    sight = Sight(0, window - 1 if window > 0 else None, 0, lengths)
    result = _weighted(b, node, Parts(parts.query, keys, values), sight, None, node.optional(10))
    return [at.join_heads(b, result), keys, values]


def _grouped(b: Builder, node: Node) -> Parts:
    heads, groups, query = node.attr("num_heads"), node.attr("kv_num_heads"), node.value(0)
    if node.has(1):
        key, value = node.value(1), node.value(2)
    else:
        size = b.facts.simplify(ex.floordiv(query.shape[2], heads + 2 * groups))
        query, key, value = _pieces(b, query, [ex.mul(heads, size), ex.mul(groups, size), ex.mul(groups, size)])
    parts = Parts(at.split_heads(b, query, heads), at.split_heads(b, key, groups), at.split_heads(b, value, groups))
    batch, _, rows, size = parts.query.shape
    key, value = (at.restate(b, x, [batch, groups, rows, size], "the new keys and values") for x in (parts.key, parts.value))
    return Parts(parts.query, key, value)


def _ends(last: te.Tensor, batch: Extent, rows: Extent, total: Extent) -> te.Tensor:
    """int64[batch]: keys in each entry once the new ones are in; the first call puts all rows in, padding too."""
    first = tirx.EQ(ex.prim(rows), ex.prim(total))
    return te.compute([ex.prim(batch)], lambda n: tirx.Select(first, ex.prim(rows), last(n).astype("int64") + 1), name="lengths")


def _turned(b: Builder, node: Node, parts: Parts, lengths: Value) -> Parts:
    batch, _, rows, _ = parts.query.shape
    shape = [ex.prim(batch), ex.prim(rows)]
    positions = b.te(lambda end: te.compute(shape, lambda n, s: end(n) - ex.prim(rows) + s, name="positions"), lengths, name="positions")
    cos, sin = (rotary.angles(b, node.value(index), positions) for index in (7, 8))
    turn = rotary.Rotation(cos, sin, bool(node.attr("rotary_interleaved", 0)))
    return Parts(rotary.rotate(b, parts.query, turn), rotary.rotate(b, parts.key, turn), parts.value)


def _cached(b: Builder, past: Value | None, now: Value, lengths: Value, total: Extent) -> Value:
    """[batch, groups, columns, size]: the past with the new rows put before each entry's end; zeros where nothing is."""
    batch, groups, rows, size = now.shape
    if past is not None:
        past = at.restate(b, past, [batch, groups, past.shape[2], size], "the past")
    room = 0 if past is None else past.shape[2]
    (columns,) = b.extents([ex.maximum(room, total)], "present")

    def compute(new: te.Tensor, end: te.Tensor, *old: te.Tensor) -> te.Tensor:
        def value(n: Any, g: Any, j: Any, d: Any) -> Any:
            start = end(n) - ex.prim(rows)
            nothing = tirx.const(0, now.dtype)
            kept = tirx.if_then_else(j < ex.prim(room), old[0](n, g, j, d), nothing) if old else nothing
            return tirx.if_then_else(tirx.And(j >= start, j < end(n)), new(n, g, j - start, d), kept)

        return te.compute([ex.prim(e) for e in (batch, groups, columns, size)], value, name="cache")

    return b.te(compute, now, lengths, *([] if past is None else [past]), name="cache")
