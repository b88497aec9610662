"""ONNX activations that Relax has no operator for."""

from collections.abc import Callable
from typing import Any

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw


def _apply(b: Builder, node: Node, scalar: Callable[[Any], Any]) -> Value:
    return pw.in_float(b, scalar, node.value(0), name=node.op.lower())


@op("Elu")
def elu(b: Builder, node: Node) -> Value:
    """alpha * (exp(x) - 1) below zero."""
    return _apply(b, node, lambda x: fn.elu(x, node.attr("alpha", 1.0)))


@op("Celu", since=12)
def celu(b: Builder, node: Node) -> Value:
    """alpha * (exp(x / alpha) - 1) below zero."""
    alpha = node.attr("alpha", 1.0)
    return _apply(b, node, lambda x: fn.elu(x, alpha, width=alpha))


@op("Selu")
def selu(b: Builder, node: Node) -> Value:
    """Elu scaled to keep variance."""
    alpha, gamma = (
        node.attr("alpha", 1.67326319217681884765625),
        node.attr("gamma", 1.05070102214813232421875),
    )
    return _apply(b, node, lambda x: fn.elu(x, alpha, gamma))


@op("Softplus")
def softplus(b: Builder, node: Node) -> Value:
    """log(1 + exp(x))."""
    return _apply(b, node, fn.softplus)


@op("Softsign")
def softsign(b: Builder, node: Node) -> Value:
    """x / (1 + |x|)."""
    return _apply(b, node, fn.softsign)


@op("Mish", since=18)
def mish(b: Builder, node: Node) -> Value:
    """x * tanh(softplus(x))."""
    return _apply(b, node, fn.mish)


@op("Swish", since=24)
def swish(b: Builder, node: Node) -> Value:
    """x * sigmoid(alpha * x)."""
    return _apply(b, node, lambda x: fn.swish(x, node.attr("alpha", 1.0)))


@op("ThresholdedRelu")
def thresholded_relu(b: Builder, node: Node) -> Value:
    """x above alpha, 0 elsewhere."""
    return _apply(b, node, lambda x: fn.threshold(x, node.attr("alpha", 1.0)))


@op("Shrink", since=9)
def shrink(b: Builder, node: Node) -> Value:
    """Elements within the limit to 0, the others moved towards it; of integers too, worked out as
    floats.
    """
    x, bias, limit = node.value(0), node.attr("bias", 0.0), node.attr("lambd", 0.5)
    if ew.is_float(x.dtype):
        return _apply(b, node, lambda item: fn.shrink(item, bias, limit))
    return pw.pointwise(
        b,
        lambda item: fn.shrink(item.astype("float64"), bias, limit).astype(x.dtype),
        x,
        name="shrink",
    )
