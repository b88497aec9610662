"""Fused layers that torch records in place of a transformer encoder's modules in
evaluation mode.
"""

import math

import numpy as np

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.operators.activation import gelu_of
from compiler.ir.aten.registry import op, refuse
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import functions
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex

_ATTENTION, _PADDING = 0, 1
"""Kinds of mask: [rows, columns] for all, [batch, columns]; any other is [batch, heads, rows,
columns].
"""


refuse(
    "_nested_tensor_from_mask_left_aligned",
    "_nested_tensor_from_mask",
    "to_padded_tensor",
    why="nested tensors are not supported; make the encoder with enable_nested_tensor=False",
)


@op("_transformer_encoder_layer_fwd")
def encoder_layer(b: Builder, node: Node) -> Value:
    """Self-attention and two linear layers, each beside a residual and normalised before
    or after.
    """
    x, first = node.value("src"), node.bool("norm_first")
    if first:
        x = ew.add(b, x, _self_attention(b, node, _normal(b, node, x, 1)))
        return ew.add(b, x, _feed_forward(b, node, _normal(b, node, x, 2)))
    x = _normal(b, node, ew.add(b, x, _self_attention(b, node, x)), 1)
    return _normal(b, node, ew.add(b, x, _feed_forward(b, node, x)), 2)


def _normal(b: Builder, node: Node, x: Value, which: int) -> Value:
    weight, bias = node.value(f"norm_weight_{which}"), node.value(f"norm_bias_{which}")
    return norm.layer_norm(b, x, weight, bias, len(x.shape) - 1, node.float("eps"))


def _feed_forward(b: Builder, node: Node, x: Value) -> Value:
    inner = _linear(b, x, node.value("ffn_weight_1"), node.value("ffn_bias_1"))
    inner = gelu_of(b, inner) if node.bool("use_gelu") else functions.relu(b, inner)
    return _linear(b, inner, node.value("ffn_weight_2"), node.value("ffn_bias_2"))


def _linear(b: Builder, x: Value, weight: Value, bias: Value) -> Value:
    return ew.add(b, linear.matmul(b, x, layout.transpose(b, weight, [1, 0])), bias)


def _self_attention(b: Builder, node: Node, x: Value) -> Value:
    shares = _linear(b, x, node.value("qkv_weight"), node.value("qkv_bias"))
    width = node.int("embed_dim")
    return _attend(b, node, layout.split(b, shares, 2, [width] * 3), node.int("num_heads"))[0]


@op("_native_multi_head_attention")
def multi_head_attention(b: Builder, node: Node) -> list[Value | None]:
    """Attention of query, key and value [batch, length, width], and its weights, averaged over the
    heads where asked for.
    """
    width = node.int("embed_dim")
    weights = layout.split(b, node.value("qkv_weight"), 0, [width] * 3)
    biases = layout.split(b, node.value("qkv_bias"), 0, [width] * 3)
    inputs = [node.value(name) for name in ("query", "key", "value")]
    shares = tuple(
        _linear(b, x, weight, bias) for x, weight, bias in zip(inputs, weights, biases, strict=True)
    )
    result, seen = _attend(b, node, shares, node.int("num_head"))
    if not node.bool("need_weights", True):
        return [result, None]
    return [
        result,
        rd.reduce(b, seen, "mean", [1], False) if node.bool("average_attn_weights", True) else seen,
    ]


def _attend(b: Builder, node: Node, shares: tuple[Value, ...], heads: int) -> tuple[Value, Value]:
    """The projected result, and weights [batch, heads, rows, columns]; the mask, taken as bool,
    leaves out where it holds.
    """
    width = node.int("embed_dim")
    query, key, value = (_by_head(b, x, heads, width) for x in shares)
    scores = linear.matmul(b, query, layout.transpose(b, key, [0, 1, 3, 2]))
    scores = ew.multiply(b, scores, scalar(b, 1 / math.sqrt(width // heads), scores.dtype))
    mask = node.optional("mask")
    if mask is not None:
        left_out = _spread(b, node, ew.cast(b, mask, "bool"), scores)
        scores = ew.where(b, left_out, scalar(b, -np.inf, scores.dtype), scores)
    weights = norm.softmax(b, scores, 3)
    joined = layout.transpose(b, linear.matmul(b, weights, value), [0, 2, 1, 3])
    rows = layout.reshape(b, joined, [joined.shape[0], joined.shape[1], width])
    return _linear(b, rows, node.value("proj_weight"), node.value("proj_bias")), weights


def _by_head(b: Builder, x: Value, heads: int, width: int) -> Value:
    return layout.transpose(
        b, layout.reshape(b, x, [*x.shape[:2], heads, width // heads]), [0, 2, 1, 3]
    )


def _spread(b: Builder, node: Node, mask: Value, scores: Value) -> Value:
    kind = node.get("mask_type", None)
    if kind == _PADDING:
        return layout.reshape(b, mask, [mask.shape[0], 1, 1, mask.shape[1]])
    if kind == _ATTENTION:
        return layout.reshape(b, mask, [1, 1, *mask.shape[-2:]])
    if len(mask.shape) == 3:
        return layout.reshape(b, mask, [mask.shape[0], 1, *mask.shape[1:]])
    b.require(
        ex.equal(mask.shape[-1], scores.shape[-1]),
        "the mask has not as many columns as there are keys",
    )
    return mask
