"""ONNX attention: Attention, FlexAttention."""

from dataclasses import dataclass
from typing import Any

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.attention import attention as at
from compiler.ir.ops.attention.bias import Sight, bias, seeing
from compiler.ir.ops.math import linear
from compiler.ir.ops.nn.norm import wide
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes.extents import Extent


@dataclass(frozen=True)
class Heads:
    """Query, keys and values as [batch, heads, length, size], the keys and values with the past
    before them.
    """

    query: Value
    key: Value
    value: Value
    past: Extent


@op("Attention", since=23)
def attention(b: Builder, node: Node) -> list[Value | None]:
    """softmax(Q K^T * scale, capped, plus masks) V; present keys and values; the scores at the
    stage asked for.
    """
    heads = _heads(b, node)
    stages, seen = _scores(b, node, heads)
    weights = at.weights(b, stages[2], None, _precision(node, stages[2].dtype))
    values = at.share_heads(b, ew.cast(b, heads.value, weights.dtype), weights.shape[1])
    result = at.zero_unseen(b, linear.matmul(b, weights, values), seen)
    result = ew.cast(b, result, heads.query.dtype)
    joined = at.join_heads(b, result) if len(node.value(0).shape) == 3 else result
    return [
        joined,
        heads.key,
        heads.value,
        _stage(b, node, [*stages, weights], seen, heads.query.dtype),
    ]


def _stage(
    b: Builder, node: Node, stages: list[Value], seen: Value | None, dtype: str
) -> Value | None:
    if not node.wants(3):
        return None
    mode = node.attr("qk_matmul_output_mode", 0)
    if mode not in range(4):
        node.fail(f"qk_matmul_output_mode is {mode}, it must be 0 to 3", reason="attribute")
    return ew.cast(b, at.zero_unseen(b, stages[mode], seen if mode == 3 else None), dtype)


def _heads(b: Builder, node: Node) -> Heads:
    query, key, value = (node.value(index) for index in range(3))
    if {len(x.shape) for x in (query, key, value)} not in ({3}, {4}):
        node.fail("Q, K and V must all have three axes, or all four", reason="rank")
    if len(query.shape) == 3:
        query = at.split_heads(b, query, node.attr("q_num_heads"))
        key, value = (at.split_heads(b, x, node.attr("kv_num_heads")) for x in (key, value))
    batch, _, _, size = query.shape
    key = at.restate(b, key, [batch, key.shape[1], key.shape[2], size], "attention's K against Q")
    value = at.restate(b, value, [*key.shape[:3], value.shape[3]], "attention's V against K")
    if node.has(4) != node.has(5):
        node.fail("past_key and past_value go together", reason="input")
    if not node.has(4):
        return Heads(query, key, value, 0)
    past = node.value(4).shape[2]
    return Heads(
        query,
        _extended(b, node.value(4), key, past),
        _extended(b, node.value(5), value, past),
        past,
    )


def _extended(b: Builder, past: Value, now: Value, length: Extent) -> Value:
    batch, heads, _, size = now.shape
    return layout.concat(
        b, [at.restate(b, past, [batch, heads, length, size], "attention's past"), now], 2
    )


def _scores(b: Builder, node: Node, heads: Heads) -> tuple[list[Value], Value | None]:
    """The scores as they are, capped, and biased; and which rows see any key."""
    dtype = wide(heads.query.dtype)
    query = at.scale_query(b, ew.cast(b, heads.query, dtype), node.attr("scale", None))
    key = at.share_heads(b, ew.cast(b, heads.key, dtype), query.shape[1])
    raw = at.query_times_key(b, query, key)
    capped = at.soft_capped(b, raw, node.attr("softcap", 0.0))
    mask, sight = node.optional(3), _sight(node, heads)
    limit_values(b, node, 6, 1, heads.key.shape[2])
    added = bias(b, raw, mask, sight)
    if added is None:
        return [raw, capped, capped], None
    return [raw, capped, ew.add(b, capped, ew.cast(b, added, dtype))], seeing(b, added, mask, sight)


def _sight(node: Node, heads: Heads) -> Sight:
    left, right = (node.attr(f"{side}_window_size", -1) for side in ("left", "right"))
    if node.attr("is_causal", 0):
        right = 0
    return Sight(
        heads.past, None if left < 0 else left, None if right < 0 else right, node.optional(6)
    )


def _precision(node: Node, dtype: str) -> str:
    """The dtype of the softmax: at least the one asked for, at least float32."""
    asked = node.attr("softmax_precision", None)
    if asked is not None and DTYPES.get(asked, "").rstrip("0123456789") not in ("float", "bfloat"):
        node.fail(f"softmax_precision {asked} is not a float type", reason="attribute")
    return dtype if asked is None or DTYPES[asked] != "float64" else "float64"


@op("FlexAttention", domain="ai.onnx.preview")
def flex_attention(b: Builder, node: Node) -> Value:
    """prob_mod(softmax(score_mod(Q K^T * scale))) V, the mods being subgraphs of one tensor."""
    heads = _heads(b, node)
    dtype = wide(heads.query.dtype)
    query = at.scale_query(b, ew.cast(b, heads.query, dtype), node.attr("scale", None))
    key, value = (
        at.share_heads(b, ew.cast(b, x, dtype), query.shape[1]) for x in (heads.key, heads.value)
    )
    precision = (
        DTYPES[node.attr("softmax_precision")] if "softmax_precision" in node.attributes else dtype
    )
    scores = _modified(b, node, "score_mod", at.query_times_key(b, query, key), precision)
    weights = _modified(
        b, node, "prob_mod", at.weights(b, scores, None, wide(precision)), precision
    )
    return ew.cast(b, linear.matmul(b, ew.cast(b, weights, dtype), value), heads.query.dtype)


def _modified(b: Builder, node: Node, name: str, x: Value, dtype: str) -> Value:
    """`x` as `dtype` through the subgraph of that name; `x` alone where there is none."""
    graph: Any = node.attr(name, None)
    x = ew.cast(b, x, dtype)
    if graph is None:
        return x
    (result,) = node.scope.subgraph(graph, [x])
    return at.restate(b, result, x.shape, f"{name}'s result")
