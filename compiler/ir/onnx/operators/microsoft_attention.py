"""Attention of ONNX Runtime's own domain: Attention, QAttention and MultiHeadAttention."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.registry import op
from compiler.ir.ops.attention import attention as at
from compiler.ir.ops.attention.bias import Sight, bias
from compiler.ir.ops.math import linear
from compiler.ir.ops.nn.norm import wide
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import dequantized, integer
from compiler.ir.ops.quantized import quantize as qt
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

SHARED = frozenset({"num_heads", "scale", "softcap"})
"""Attributes that every operator here may have."""
_EXPORTED_WITHOUT = {
    "the attribute sliding_window_cache": (
        "export the model with windowed_kv_cache=false, an extra option of onnxruntime-genai's "
        "builder"
    )
}
"""What to change in an export, by what is not supported."""
_MASKED = SHARED - {"softcap"} | {"mask_filter_value", "unidirectional"}


@dataclass(frozen=True)
class Parts:
    """Query, keys and values as [batch, heads, length, size], the last two with `past` rows before
    the new ones.
    """

    query: Value
    key: Value
    value: Value
    past: Extent = 0


@op("Attention", domain=MICROSOFT)
def attention(b: Builder, node: Node) -> list[Value | None]:
    """Input times weights plus bias, split into query, keys and values; attention over them and the
    past; the present.
    """
    refuse_others(node, 6, _MASKED | {"qkv_hidden_sizes", "rotary_embedding_dim"}, 2)
    x, weight = node.value(0), node.value(1)
    joined = dequantized.matmul(b, x, weight) or linear.matmul(b, x, weight)
    return _attend_joined(b, node, joined, mask=3, past=4, added=node.optional(5))


@op("QAttention", domain=MICROSOFT)
def quantized_attention(b: Builder, node: Node) -> list[Value | None]:
    """Attention whose query, keys and values are the product of quantized tensors; they themselves
    are floats.
    """
    refuse_others(node, 9, _MASKED, 2)
    x, weight = node.value(0), node.value(1)
    total = integer.matmul(b, x, weight, node.optional(6), node.optional(7))
    joined = qt.rescale(b, total, node.value(3), 0, node.value(4), 2)
    return _attend_joined(b, node, joined, mask=5, past=8, added=None)


def _attend_joined(
    b: Builder, node: Node, joined: Value, mask: int, past: int, added: Value | None
) -> list[Value | None]:
    """Attention of query, keys and values side by side, [batch, length, 3 * hidden], with the bias
    in input 2; mask and past: indices of inputs. Also the present.
    """
    heads = node.attr("num_heads")
    joined = ew.add(b, joined, node.value(2)) if node.has(2) else joined
    third = b.facts.simplify(ex.floordiv(joined.shape[2], 3))
    sizes = node.attr("qkv_hidden_sizes", [third, third, third])
    parts = Parts(*(at.split_heads(b, piece, heads) for piece in pieces(b, joined, sizes)))
    if node.has(past):
        earlier = [indexing.item(b, node.value(past), 0, i) for i in range(2)]
        parts = _extended(b, parts, *earlier)
    result = _attend(b, node, parts, _padding(b, node, mask, parts), added)
    present = None
    if node.wants(1):
        present = layout.concat(
            b, [layout.unsqueeze(b, part, [0]) for part in (parts.key, parts.value)], 0
        )
    return [at.join_heads(b, result), present]


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(b: Builder, node: Node) -> list[Value | None]:
    """Attention of given query, keys and values, with their bias and past; the present keys and
    values.
    """
    refuse_others(node, 8, _MASKED, 3)
    parts = Parts(*_heads(b, node))
    if node.has(6) != node.has(7):
        node.fail("past_key and past_value go together", reason="input")
    if node.has(6):
        parts = _extended(b, parts, node.value(6), node.value(7))
    result = _attend(b, node, parts, _padding(b, node, 4, parts), node.optional(5))
    return [at.join_heads(b, result), parts.key, parts.value]


def refuse_others(node: Node, inputs: int, attributes: Collection[str], outputs: int) -> None:
    """Fail where more inputs or outputs, or other attributes, are used than these."""
    used = [f"input {i}" for i in range(inputs, len(node.inputs)) if node.has(i)]
    used += [
        f"the attribute {name}"
        for name, value in node.attributes.items()
        if name not in attributes and value not in (0, "", "NONE")
    ]
    used += [f"output {i}" for i in range(outputs, len(node.proto.output)) if node.wants(i)]
    if used:
        node.fail(
            f"{used[0]} is not supported",
            reason="unsupported_form",
            hint=_EXPORTED_WITHOUT.get(used[0], "export the model without it"),
        )


def _heads(b: Builder, node: Node) -> list[Value]:
    """Query, keys and values as heads, from tensors of their own or packed along the last axis but
    one of [.., heads, 3 or 2, size].
    """
    heads, query = node.attr("num_heads"), node.value(0)
    if len(query.shape) == 5:
        inputs = _unpacked(b, query, 3)
    elif node.has(1) and len(node.value(1).shape) == 5:
        inputs = [query, *_unpacked(b, node.value(1), 2)]
    else:
        inputs = [node.value(index) for index in range(3)]
    ranks = [len(x.shape) for x in inputs]
    if ranks == [3, 4, 4]:
        if node.has(6):
            node.fail(
                "keys and values that come as heads have no past",
                reason="unsupported_form",
                hint="join them to the past",
            )
        query = _biased(b, node, inputs[:1], heads)[0] if node.has(3) else inputs[0]
        return [at.split_heads(b, query, heads), *inputs[1:]]
    if ranks != [3, 3, 3]:
        node.fail(
            f"query, key and value of ranks {ranks} are not supported",
            reason="unsupported_form",
            hint="give each of them three axes",
        )
    return [
        at.split_heads(b, x, heads)
        for x in (_biased(b, node, inputs, heads) if node.has(3) else inputs)
    ]


def _unpacked(b: Builder, x: Value, count: int) -> list[Value]:
    """[batch, length, heads, count, size] as `count` of [batch, length, heads * size]."""
    b.same(x.shape[3], count, f"{count} tensors are packed along an axis of {x.shape[3]}")
    hidden = b.facts.simplify(ex.mul(x.shape[2], x.shape[4]))
    return [
        layout.reshape(b, indexing.item(b, x, 3, i), [*x.shape[:2], hidden]) for i in range(count)
    ]


def _biased(b: Builder, node: Node, inputs: list[Value], heads: int) -> list[Value]:
    """Each input plus its piece of the bias; the query alone takes the first piece of one that has
    more.
    """
    bias = node.value(3)
    sizes = [x.shape[2] for x in inputs]
    if len(inputs) == 1:
        sizes.append(b.facts.simplify(ex.sub(bias.shape[0], sizes[0])))
    return [ew.add(b, x, piece) for x, piece in zip(inputs, pieces(b, bias, sizes), strict=False)]


def pieces(b: Builder, x: Value, sizes: list[Extent]) -> list[Value]:
    """The last axis cut into pieces of these sizes, which it must hold exactly."""
    last = len(x.shape) - 1
    b.same(
        x.shape[last], ex.total(sizes), "query, keys and values do not fill what they are cut from"
    )
    starts = [ex.total(sizes[:i]) for i in range(len(sizes))]
    return [
        layout.strided_slice(b, x, last, start, ex.add(start, size), 1)
        for start, size in zip(starts, sizes, strict=True)
    ]


def _extended(b: Builder, parts: Parts, keys: Value, values: Value) -> Parts:
    """The parts with a past of keys and values before the new ones."""
    past = keys.shape[2]

    def extended(old: Value, now: Value) -> Value:
        batch, heads, _, size = now.shape
        return layout.concat(
            b, [at.restate(b, old, [batch, heads, past, size], "the past"), now], 2
        )

    return replace(
        parts, key=extended(keys, parts.key), value=extended(values, parts.value), past=past
    )


def _padding(b: Builder, node: Node, index: int, parts: Parts) -> Value | None:
    """float[batch, 1, 1 or rows, keys]: mask_filter_value where the mask is 0, or beyond the length
    that it gives.
    """
    if not node.has(index):
        return None
    mask, keys, dtype = node.value(index), parts.key.shape[2], wide(parts.query.dtype)
    batch, _, rows, _ = parts.query.shape
    if len(mask.shape) not in (1, 2, 3):
        node.fail(
            "masks of this rank are not supported",
            reason="unsupported_form",
            hint="use a mask of [batch, keys]",
        )
    per_row = len(mask.shape) == 3
    shape = {1: [batch], 2: [batch, keys], 3: [batch, rows, keys]}[len(mask.shape)]
    for have, want in zip(mask.shape, shape, strict=True):
        b.same(have, want, f"the mask has an axis of {have} where {want} is needed")

    def compute(data: te.Tensor) -> te.Tensor:
        def value(n: Any, _: Any, i: Any, j: Any) -> Any:
            seen = (
                j < data(n).astype("int64")
                if len(mask.shape) == 1
                else (data(n, i, j) if per_row else data(n, j)) > 0
            )
            return tirx.Select(
                seen,
                tirx.const(0, dtype),
                tirx.const(node.attr("mask_filter_value", -10000.0), dtype),
            )

        return te.compute(
            [ex.prim(e) for e in (batch, 1, rows if per_row else 1, keys)], value, name="padding"
        )

    return b.te(compute, mask, name="padding")


def _attend(
    b: Builder, node: Node, parts: Parts, padding: Value | None, added: Value | None
) -> Value:
    backward = bool(node.attr("unidirectional", 0))
    if backward:
        new = b.facts.simplify(ex.sub(parts.key.shape[2], parts.past))
        b.same(
            new,
            parts.query.shape[2],
            f"unidirectional attention has {parts.query.shape[2]} queries for {new} new keys",
        )
    return attend_biased(
        b, node, parts, Sight(parts.past, right=0 if backward else None), padding, added
    )


def attend_biased(
    b: Builder,
    node: Node,
    parts: Parts,
    sight: Sight,
    padding: Value | None,
    added: Value | None,
    sink: Value | None = None,
) -> Value:
    """softmax(query @ key^T * scale + padding + added, as far as it sees) @ value, in the query's
    dtype.

    sink: [heads], a score of each head that weighs nothing but takes its share.
    """
    dtype = wide(parts.query.dtype)
    batch, heads, _, size = parts.query.shape
    key = at.restate(
        b, parts.key, [batch, parts.key.shape[1], parts.key.shape[2], size], "attention's keys"
    )
    value = at.restate(b, parts.value, [*key.shape[:3], parts.value.shape[3]], "attention's values")
    key, value = (at.share_heads(b, ew.cast(b, x, dtype), heads) for x in (key, value))
    scores = at.query_times_key(
        b, at.scale_query(b, ew.cast(b, parts.query, dtype), node.attr("scale", 0.0) or None), key
    )
    scores = at.soft_capped(b, scores, node.attr("softcap", 0.0))
    for addend in (padding, bias(b, scores, added, sight)):
        scores = scores if addend is None else ew.add(b, scores, ew.cast(b, addend, dtype))
    weights = (
        at.weights(b, scores, None, dtype)
        if sink is None
        else _sunk(b, scores, ew.cast(b, sink, dtype))
    )
    return ew.cast(b, linear.matmul(b, weights, value), parts.query.dtype)


def _sunk(b: Builder, scores: Value, sink: Value) -> Value:
    """Softmax over the last axis and one more score a head, without that one's weight."""
    batch, heads, rows, columns = scores.shape
    b.same(sink.shape[0], heads, f"{sink.shape[0]} sinks for {heads} heads")
    column = broadcast.expand(b, layout.reshape(b, sink, [1, heads, 1, 1]), [batch, heads, rows, 1])
    return layout.strided_slice(
        b,
        at.weights(b, layout.concat(b, [scores, column], 3), None, scores.dtype),
        3,
        0,
        columns,
        1,
    )
