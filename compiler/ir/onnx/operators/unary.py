"""ONNX functions of one tensor: arithmetic, transcendental and activation."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.pointwise import activation, extremes
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import functions as fn
from compiler.ir.ops.pointwise import programs as pw


def _register(name: str, emit: fn.Emit, fold: fn.Fold | None) -> None:
    @op(name.capitalize())
    def handler(b: Builder, node: Node) -> Value:
        x = node.value(0)
        if x.dtype == "bfloat16" and not isinstance(x, Known):
            return pw.in_float(b, getattr(tirx, name), x, name=name)
        if isinstance(x, Known):
            return ew.unary(b, x, emit, numpy=fold)
        return fn.of_floats(b, x, emit)

    handler.__doc__ = f"{name}, elementwise."


for _name, (_emit, _fold) in fn.OF_FLOATS.items():
    _register(_name, _emit, _fold)


@op("Neg")
def neg(b: Builder, node: Node) -> Value:
    """-x."""
    return _in_float32(b, node.value(0), fn.negative)


@op("Abs")
def absolute(b: Builder, node: Node) -> Value:
    """|x|."""
    return _in_float32(b, node.value(0), fn.absolute)


def _in_float32(b: Builder, x: Value, function: Callable[[Builder, Value], Value]) -> Value:
    """A function of 16-bit floats, computed in float32; of others, as it is."""
    if x.dtype in pw.HALF_PRECISION and not isinstance(x, Known):
        return ew.cast(b, function(b, ew.cast(b, x, "float32")), x.dtype)
    return function(b, x)


@op("Relu")
def relu(b: Builder, node: Node) -> Value:
    """max(x, 0), a NaN staying NaN."""
    return fn.relu(b, node.value(0))


@op("Reciprocal", since=6)
def reciprocal(b: Builder, node: Node) -> Value:
    """1 / x."""
    x = node.value(0)
    return ew.divide(b, fn.constant(x, 1), x)


def _integral(name: str, scalar: Callable[[Any], Any], fold: Callable[[Any], Any]) -> None:
    @op(name)
    def handler(b: Builder, node: Node) -> Value:
        x = node.value(0)
        return ew.unary(
            b,
            x,
            getattr(relax.op, name.lower()),
            numpy=fold,
            symbolic=lambda v: fn.round_extent(v, scalar),
        )

    handler.__doc__ = f"{name}, elementwise; of a float made from an integer, that integer."


_integral("Floor", tirx.floor, np.floor)
_integral("Ceil", tirx.ceil, np.ceil)


@op("Round", since=11)
def round_half_even(b: Builder, node: Node) -> Value:
    """The nearest integer, halves to even."""
    x = node.value(0)
    if isinstance(x, Known) and not x.symbolic:
        return Known(np.rint(x.data), x.dtype)
    return pw.pointwise(b, lambda v: _rint(v, x.dtype), x, name="round")


def _rint(value: Any, dtype: str) -> Any:
    work = "float64" if dtype == "float64" else "float32"
    return tirx.nearbyint(value.astype(work)).astype(dtype)


@op("Sign", since=9)
def sign(b: Builder, node: Node) -> Value:
    """-1, 0 or 1; NaN for NaN."""
    return fn.sign(b, node.value(0), keep_nan=True)


@op("IsNaN", since=9)
def isnan(b: Builder, node: Node) -> Value:
    """True where an element is NaN."""
    x = node.value(0)
    work = "float64" if x.dtype == "float64" else "float32"
    return pw.pointwise(b, lambda v: tirx.isnan(v.astype(work)), x, name="isnan")


@op("IsInf", since=10)
def isinf(b: Builder, node: Node) -> Value:
    """True where an element is an infinity of a detected sign."""
    x = node.value(0)
    positive, negative = node.attr("detect_positive", 1), node.attr("detect_negative", 1)

    def is_detected(v: Any) -> Any:
        matches = [
            tirx.EQ(v, tirx.const(sign_, x.dtype))
            for wanted, sign_ in ((positive, float("inf")), (negative, float("-inf")))
            if wanted
        ]
        return (
            tirx.Or(*matches)
            if len(matches) == 2
            else matches[0]
            if matches
            else tirx.const(False, "bool")
        )

    return pw.pointwise(b, is_detected, x, name="isinf")


@op("Clip", since=6)
def clip(b: Builder, node: Node) -> Value:
    """Limited to [min, max], given as attributes (opset 6) or scalar inputs (11)."""
    x = node.value(0)
    low = _bound(node, x, 1, "min")
    high = _bound(node, x, 2, "max")
    if low is not None:
        x = extremes.greater(b, x, low)
    if high is not None:
        x = extremes.lesser(b, x, high)
    return x


def _bound(node: Node, x: Value, index: int, attribute: str) -> Value | None:
    if attribute in node.attributes:
        return fn.constant(x, node.attributes[attribute])
    return node.optional(index)


@op("LeakyRelu")
def leaky_relu(b: Builder, node: Node) -> Value:
    """x where it is not negative, alpha * x elsewhere."""
    x = node.value(0)
    return fn.leaky_relu(b, x, fn.constant(x, node.attr("alpha", 0.01)))


@op("HardSigmoid")
def hard_sigmoid(b: Builder, node: Node) -> Value:
    """alpha * x + beta limited to [0, 1]."""
    x = node.value(0)
    line = ew.add(
        b,
        ew.multiply(b, x, fn.constant(x, node.attr("alpha", 0.2))),
        fn.constant(x, node.attr("beta", 0.5)),
    )
    return _limited(b, line)


def _limited(b: Builder, x: Value) -> Value:
    return extremes.lesser(b, extremes.greater(b, x, fn.constant(x, 0)), fn.constant(x, 1))


@op("HardSwish", since=14)
def hard_swish(b: Builder, node: Node) -> Value:
    """x * limited(x / 6 + 1/2)."""
    x = node.value(0)
    return ew.multiply(
        b, x, _limited(b, ew.add(b, ew.multiply(b, x, fn.constant(x, 1 / 6)), fn.constant(x, 0.5)))
    )


@op("Gelu", since=20)
def gelu(b: Builder, node: Node) -> Value:
    """x * Phi(x), exact by erf or approximate by tanh."""
    x = node.value(0)
    by_tanh = node.attr("approximate", "none") == "tanh"
    if x.dtype in pw.HALF_PRECISION:
        return pw.in_float(b, lambda item: activation.gelu(item, by_tanh), x, name="gelu")
    emit = relax.op.nn.gelu_tanh if by_tanh else relax.op.nn.gelu
    return b.emit(emit(b.tensor(x).expr), x.shape)


@op("PRelu", since=7)
def prelu(b: Builder, node: Node) -> Value:
    """x where it is not negative, slope * x elsewhere; the slope broadcasts to x."""
    return fn.leaky_relu(b, node.value(0), node.value(1))
