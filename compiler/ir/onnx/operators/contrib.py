"""Operators of ONNX Runtime's own domain that its optimiser makes: fused normalisations,
activations and products.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from tvm import relax

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators import convolution, linear, normalization
from compiler.ir.onnx.operators.indexing import indexes
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import linear as products
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import norm
from compiler.ir.ops.nn.norm import constant
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import extremes, programs
from compiler.ir.ops.shape import indexing, layout

MICROSOFT = "com.microsoft"

op("LayerNormalization")(normalization.layer_norm)


@op("SimplifiedLayerNormalization")
@op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(b: Builder, node: Node) -> Value:
    """Over the axes from `axis` on, by the root mean square."""
    x = node.value(0)
    _only_first(node)
    axis = layout.axis_of(node.attr("axis", -1), len(x.shape))
    return norm.rms_norm(b, x, node.value(1), axis, node.attr("epsilon", 1e-5), norm.wide(x.dtype))


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(b: Builder, node: Node) -> list[Value | None]:
    """Input plus skip plus bias, normalised over the last axis; that sum too where wanted."""
    total = _skipped(b, node, 4)
    gamma, beta = node.value(2), node.optional(3)
    return [
        norm.layer_norm(b, total, gamma, beta, len(total.shape) - 1, node.attr("epsilon", 1e-12)),
        None,
        None,
        total,
    ]


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_norm(b: Builder, node: Node) -> list[Value | None]:
    """Input plus skip plus bias, over its root mean square along the last axis; that sum too where
    wanted.
    """
    total = _skipped(b, node, 3)
    last = len(total.shape) - 1
    return [
        norm.rms_norm(
            b, total, node.value(2), last, node.attr("epsilon", 1e-12), norm.wide(total.dtype)
        ),
        None,
        None,
        total,
    ]


def _skipped(b: Builder, node: Node, bias_index: int) -> Value:
    _only_first(node)
    total = ew.add(b, node.value(0), node.value(1))
    bias = node.optional(bias_index)
    return total if bias is None else ew.add(b, total, bias)


def _only_first(node: Node) -> None:
    if node.wants(1) or node.wants(2):
        node.fail(
            "the mean and inverse deviation are outputs for training",
            reason="training",
            hint="export the model for inference",
        )


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(b: Builder, node: Node) -> list[Value | None]:
    """Word, position and segment embeddings added up and normalised; the mask's sums, and the sum
    of embeddings where wanted.
    """
    ids, positions = node.value(0), node.optional(8)
    words = embed_rows(b, node, 2, 0)
    if positions is None:
        embedded = layout.strided_slice(b, node.value(3), 0, 0, ids.shape[1], 1)
    else:
        embedded = embed_rows(b, node, 3, 8)
    total = ew.add(b, words, embedded)
    if node.has(1):
        total = ew.add(b, total, embed_rows(b, node, 4, 1))
    result = norm.layer_norm(b, total, node.value(5), node.value(6), 2, node.attr("epsilon", 1e-12))
    return [result, sum_mask(b, node), total]


def embed_rows(b: Builder, node: Node, table: int, indices: int) -> Value:
    """The rows of the table in one input at the indices in another."""
    indexes(b, node, indices, node.value(table).shape[0])
    positions = indexing.check(b, node.value(indices), node.value(table).shape[0])
    return layout.take(b, node.value(table), positions, 0)


def sum_mask(b: Builder, node: Node) -> Value | None:
    """The sums of the mask in input 7, zeros without one; None where the output is not wanted."""
    if not node.wants(1):
        return None
    if node.has(7):
        return rd.reduce(b, node.value(7), "sum", [1], False)
    lengths = ew.multiply(b, node.value(0), constant(0, node.value(0).dtype))
    return ew.cast(b, rd.reduce(b, lengths, "sum", [1], False), "int32")


def _activated(b: Builder, x: Value, scalar: Callable[[Any], Any], name: str) -> Value:
    return programs.in_float(b, scalar, x, name=name)


@op("Gelu", domain=MICROSOFT)
def gelu(b: Builder, node: Node) -> Value:
    """x * Phi(x)."""
    return _activated(b, node.value(0), lambda x: fn.gelu(x, by_tanh=False), "gelu")


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(b: Builder, node: Node) -> Value:
    """Gelu of x plus a bias."""
    return _activated(
        b, ew.add(b, node.value(0), node.value(1)), lambda x: fn.gelu(x, by_tanh=False), "gelu"
    )


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(b: Builder, node: Node) -> Value:
    """Gelu by tanh, of x plus an optional bias."""
    x = node.value(0)
    x = ew.add(b, x, node.value(1)) if node.has(1) else x
    return _activated(b, x, lambda item: fn.gelu(item, by_tanh=True), "gelu")


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(b: Builder, node: Node) -> Value:
    """x * sigmoid(alpha * x)."""
    alpha = node.attr("alpha", 1.702)
    return _activated(b, node.value(0), lambda x: fn.swish(x, alpha), "quick_gelu")


@op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(b: Builder, node: Node) -> Value:
    """alpha * A' @ B', each prime an optional transpose of the last two axes and of the first with
    the batch axes.
    """
    x, y = (_turned(b, node, index, side) for index, side in enumerate("AB"))
    alpha = node.attr("alpha", 1.0)
    result = products.matmul(b, x, y)
    return result if alpha == 1 else ew.multiply(b, result, constant(alpha, result.dtype))


def _turned(b: Builder, node: Node, index: int, side: str) -> Value:
    x = node.value(index)
    rank = len(x.shape)
    if node.attr(f"transBatch{side}", 0):
        x = layout.transpose(b, x, [*range(1, rank - 1), 0, rank - 1])
    if node.attr(f"trans{side}", 0) and rank > 1:
        x = layout.transpose(b, x, [*range(rank - 2), rank - 1, rank - 2])
    return x


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(b: Builder, node: Node) -> Value:
    """Gemm and an activation."""
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return _fused_activation(
        b,
        node,
        cast(Value, linear.gemm(b, node)),
        [node.attr(name) for name in names if name in node.attributes],
    )


@op("FusedConv", domain=MICROSOFT)
def fused_conv(b: Builder, node: Node) -> Value:
    """Conv, plus an optional tensor, and an activation."""
    result = cast(Value, convolution.conv(b, node))
    result = ew.add(b, result, node.value(3)) if node.has(3) else result
    return _fused_activation(b, node, result, node.attr("activation_params", []))


def _fused_activation(b: Builder, node: Node, x: Value, parameters: list[float]) -> Value:
    name = node.attr("activation", "")
    plain = {"": None, "Relu": relax.op.nn.relu, "Tanh": relax.op.tanh, "Sigmoid": relax.op.sigmoid}
    if name in plain:
        emit = plain[name]
        return x if emit is None else ew.unary(b, x, emit)
    one, other = [*parameters, 0.0, 0.0][:2]
    if name == "LeakyRelu":
        return _activated(b, x, lambda v: fn.leaky(v, one), "leaky_relu")
    if name == "Clip" and len(parameters) == 2:
        low, high = (Known(np.asarray(limit, x.dtype), x.dtype) for limit in (one, other))
        return extremes.lesser(b, extremes.greater(b, x, low), high)
    if name == "HardSigmoid" and len(parameters) == 2:
        return _activated(b, x, lambda v: fn.hard_sigmoid(v, one, other), "hard_sigmoid")
    return node.fail(
        f"the fused activation {name!r} is not supported", reason="unsupported_activation"
    )
