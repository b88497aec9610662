"""Activations and softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, scalar, to_float
from compiler.ir.aten.operators.arithmetic import greater_of, lesser_of
from compiler.ir.aten.operators.unary import of_float
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import conv, norm
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import functions
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


def _limited(b: Builder, x: Value, low: float, high: float) -> Value:
    return lesser_of(b, scalar(b, high, x.dtype), greater_of(b, scalar(b, low, x.dtype), x))


@op("relu")
def relu(b: Builder, node: Node) -> Value:
    """max(self, 0)."""
    return functions.relu(b, node.value("self"))


@op("relu6")
def relu6(b: Builder, node: Node) -> Value:
    """self limited to [0, 6]."""
    return _limited(b, node.value("self"), 0, 6)


@op("leaky_relu")
def leaky_relu(b: Builder, node: Node) -> Value:
    """self where it is not negative, negative_slope * self elsewhere."""
    x = node.value("self")
    slope = scalar(b, node.get("negative_slope"), x.dtype)
    return functions.leaky_relu(b, x, slope)


@op("rrelu")
def rrelu(b: Builder, node: Node) -> Value:
    """leaky_relu with the slope in the middle of its range, as in evaluation mode."""
    if node.bool("training"):
        node.fail(
            "rrelu in training mode is not supported",
            reason="unsupported_form",
            hint="save the model in evaluation mode",
        )
    x = node.value("self")
    slope = scalar(b, (node.float("lower") + node.float("upper")) / 2, x.dtype)
    return functions.leaky_relu(b, x, slope)


@op("prelu", "_prelu_kernel")
def prelu(b: Builder, node: Node) -> Value:
    """self where it is not negative, weight * self elsewhere; one weight, or one a channel."""
    x, weight = node.value("self"), node.value("weight")
    if len(weight.shape) == 1 and len(x.shape) > 1 and b.facts.same(weight.shape[0], 1) is not True:
        weight = conv.per_channel(b, weight, x)
    return functions.leaky_relu(b, x, weight)


@op("gelu")
def gelu(b: Builder, node: Node) -> Value:
    """self * Phi(self), exact by erf or approximate by tanh."""
    return gelu_of(b, node.value("self"), node.get("approximate", "none") == "tanh")


def gelu_of(b: Builder, x: Value, approximate: bool = False) -> Value:
    """`gelu` of a value."""
    return of_float(b, x, relax.op.nn.gelu_tanh if approximate else relax.op.nn.gelu)


@op("silu", "swish")
def silu(b: Builder, node: Node) -> Value:
    """self * sigmoid(self)."""
    return of_float(b, node.value("self"), relax.op.nn.silu)


@op("hardsigmoid")
def hardsigmoid(b: Builder, node: Node) -> Value:
    """self / 6 + 1/2 limited to [0, 1]."""
    return _hard(b, node.value("self"))


@op("hardswish")
def hardswish(b: Builder, node: Node) -> Value:
    """self * hardsigmoid(self)."""
    x = node.value("self")
    return ew.multiply(b, x, _hard(b, x))


def _hard(b: Builder, x: Value) -> Value:
    return ew.divide(
        b, _limited(b, ew.add(b, x, scalar(b, 3, x.dtype)), 0, 6), scalar(b, 6, x.dtype)
    )


def _pointwise(name: str, function: Callable[[Node, Any], Any], *aliases: str) -> None:
    @op(name, *aliases)
    def handler(b: Builder, node: Node) -> Value:
        return pw.in_float(
            b, lambda v: function(node, v), to_float(b, node.value("self")), name=name
        )

    handler.__doc__ = f"{name}, elementwise."


def _softplus(node: Node, v: Any) -> Any:
    beta, threshold = pw.like(v, node.float("beta")), pw.like(v, node.float("threshold"))
    return tirx.Select(v * beta > threshold, v, fn.softplus(v * beta) / beta)


def _elu(node: Node, v: Any) -> Any:
    alpha, scale, width = node.float("alpha"), node.float("scale", 1), node.float("input_scale", 1)
    return fn.elu(v, alpha, scale, 1 / width)


_pointwise("softplus", _softplus)
_pointwise("elu", _elu)
_pointwise("celu", lambda node, v: fn.elu(v, node.float("alpha"), width=node.float("alpha")))
_pointwise(
    "selu",
    lambda node, v: fn.elu(v, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946),
)
_pointwise("mish", lambda node, v: fn.mish(v))
_pointwise("log_sigmoid", lambda node, v: -fn.softplus(-v))
_pointwise("tanhshrink", lambda node, v: v - tirx.tanh(v))


def _shrink(v: Any, bias: float, limit: float) -> Any:
    return tirx.Select(tirx.isnan(v), v, fn.shrink(v, bias, limit))


_pointwise("hardshrink", lambda node, v: _shrink(v, 0, node.float("lambd")))
_pointwise("softshrink", lambda node, v: _shrink(v, node.float("lambd"), node.float("lambd")))
_pointwise("logit", lambda node, v: _logit(node, v), "special_logit")


def _logit(node: Node, v: Any) -> Any:
    if node.has("eps"):
        eps = node.float("eps")
        v = tirx.max(tirx.min(v, pw.like(v, 1 - eps)), pw.like(v, eps))
    return tirx.log(v / (pw.like(v, 1) - v))


@op("threshold")
def threshold(b: Builder, node: Node) -> Value:
    """`value` up to the threshold, self elsewhere, which a NaN is."""
    x = node.value("self")
    below = ew.compare(b, x, operand(b, node, node.get("threshold"), x.dtype), "less_equal")
    return ew.where(b, below, operand(b, node, node.get("value"), x.dtype), x)


@op("glu")
def glu(b: Builder, node: Node) -> Value:
    """The first half along an axis times the sigmoid of the second."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape))
    half = b.facts.simplify(ex.floordiv(x.shape[axis], 2))
    one, other = layout.split(b, x, axis, [half, half])
    return ew.multiply(b, one, of_float(b, other, relax.op.sigmoid))


@op("softmax", "_softmax", "special_softmax")
def softmax(b: Builder, node: Node) -> Value:
    """exp(self) over its sum along an axis."""
    return _soft(b, node, log=False)


@op("_safe_softmax")
def safe_softmax(b: Builder, node: Node) -> Value:
    """softmax, and zeros where all along the axis is -inf."""
    x = node.value("self")
    if not x.shape:
        return _soft(b, node, log=False)
    infinite = ew.compare(b, x, scalar(b, -np.inf, x.dtype), "equal")
    excluded = rd.reduce(b, infinite, "min", [node.axis("dim", len(x.shape))], True)
    soft = _soft(b, node, log=False)
    return ew.where(b, excluded, scalar(b, 0, soft.dtype), soft)


@op("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(b: Builder, node: Node) -> Value:
    """The logarithm of softmax."""
    return _soft(b, node, log=True)


def _soft(b: Builder, node: Node, log: bool) -> Value:
    x = node.value("self")
    x = ew.cast(b, x, node.dtype("dtype", x.dtype))
    if not x.shape:
        return layout.reshape(b, norm.softmax(b, layout.reshape(b, x, [1]), 0, log), [])
    return norm.softmax(b, x, node.axis("dim", len(x.shape)), log)
