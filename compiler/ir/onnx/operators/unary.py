"""ONNX functions of one tensor: arithmetic, transcendental and activation."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr as PrimExpr

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import extremes
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex

Emit = Callable[[relax.Expr], relax.Expr]


def _register(
    name: str,
    emit: Emit,
    fold: Callable[[Any], Any] | None,
    symbolic: Callable[[Any], Any] | None = None,
) -> None:
    @op(name)
    def handler(b: Builder, node: Node) -> Value:
        x = node.value(0)
        if x.dtype == "bfloat16" and not isinstance(x, Known) and symbolic is None:
            return pw.in_float(b, getattr(tirx, name.lower()), x, name=name.lower())
        if x.dtype in pw.HALF_PRECISION and not isinstance(x, Known):
            return ew.cast(b, ew.unary(b, ew.cast(b, x, "float32"), emit), x.dtype)
        return ew.unary(b, x, emit, numpy=fold, symbolic=symbolic)

    handler.__doc__ = f"{name}, elementwise."


_R = relax.op
for _name, _emit, _fold in (
    ("Sqrt", _R.sqrt, np.sqrt), ("Exp", _R.exp, np.exp), ("Log", _R.log, np.log),
    ("Sin", _R.sin, np.sin), ("Cos", _R.cos, np.cos), ("Tan", _R.tan, np.tan),
    ("Asin", _R.asin, np.arcsin), ("Acos", _R.acos, np.arccos),
    ("Atan", _R.atan, np.arctan), ("Sinh", _R.sinh, np.sinh), ("Cosh", _R.cosh, np.cosh),
    ("Tanh", _R.tanh, np.tanh),
    ("Asinh", _R.asinh, np.arcsinh), ("Acosh", _R.acosh, np.arccosh),
    ("Atanh", _R.atanh, np.arctanh), ("Erf", _R.erf, None),
    ("Sigmoid", _R.sigmoid, None),
):  # fmt: skip
    _register(_name, _emit, _fold)
_register("Neg", _R.negative, np.negative, lambda v: ex.sub(0, v))
_register("Abs", _R.abs, np.abs, lambda v: ex.select(ex.less(v, 0), ex.sub(0, v), v))


@op("Relu")
def relu(b: Builder, node: Node) -> Value:
    """max(x, 0), a NaN staying NaN."""
    x = node.value(0)
    return (
        ew.binary(b, x, _scalar(x, 0), relax.op.maximum, numpy=np.maximum, symbolic=ex.maximum)
        if not ew.is_float(x.dtype)
        else ew.unary(b, x, relax.op.nn.relu, numpy=lambda v: np.maximum(v, 0))
    )


@op("Reciprocal", since=6)
def reciprocal(b: Builder, node: Node) -> Value:
    """1 / x."""
    x = node.value(0)
    return ew.divide(b, _scalar(x, 1), x)


def _integral(name: str, scalar: Callable[[Any], Any], fold: Callable[[Any], Any]) -> None:
    @op(name)
    def handler(b: Builder, node: Node) -> Value:
        x = node.value(0)
        return ew.unary(
            b,
            x,
            getattr(relax.op, name.lower()),
            numpy=fold,
            symbolic=lambda v: _integral_extent(v, scalar),
        )

    handler.__doc__ = f"{name}, elementwise; of a float made from an integer, that integer."


def _integral_extent(item: Any, scalar: Callable[[Any], Any]) -> Any:
    if isinstance(item, tirx.Cast) and item.value.ty.dtype == "int64":
        return item
    return scalar(item) if isinstance(item, PrimExpr) else item


_integral("Floor", tirx.floor, np.floor)
_integral("Ceil", tirx.ceil, np.ceil)


@op("Round", since=11)
def round_half_even(b: Builder, node: Node) -> Value:
    """The nearest integer, halves to even."""
    x = node.value(0)
    if isinstance(x, Known) and not x.symbolic:
        return Known(np.rint(x.data), x.dtype)
    return b.te(
        lambda p: te.compute(p.shape, lambda *i: _rint(p(*i), x.dtype), name="round"),
        x,
        name="round",
        elementwise=True,
    )


def _rint(value: Any, dtype: str) -> Any:
    work = "float64" if dtype == "float64" else "float32"
    return tirx.nearbyint(value.astype(work)).astype(dtype)


@op("Sign", since=9)
def sign(b: Builder, node: Node) -> Value:
    """-1, 0 or 1; NaN for NaN."""
    x = node.value(0)

    def sign_of(v: Any) -> Any:
        zero, one = tirx.const(0, x.dtype), tirx.const(1, x.dtype)
        below = tirx.const(0, x.dtype) if x.dtype.startswith("uint") else tirx.const(-1, x.dtype)
        return tirx.Select(v > zero, one, tirx.Select(v < zero, below, v))

    if isinstance(x, Known) and not x.symbolic:
        return Known(np.sign(x.data), x.dtype)
    return b.te(
        lambda p: te.compute(p.shape, lambda *i: sign_of(p(*i)), name="sign"), x, name="sign"
    )


@op("IsNaN", since=9)
def isnan(b: Builder, node: Node) -> Value:
    """True where an element is NaN."""
    x = node.value(0)
    return b.te(
        lambda p: te.compute(
            p.shape,
            lambda *i: tirx.isnan(p(*i).astype("float64" if x.dtype == "float64" else "float32")),
            name="isnan",
        ),
        x,
        name="isnan",
    )


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

    return b.te(
        lambda p: te.compute(p.shape, lambda *i: is_detected(p(*i)), name="isinf"), x, name="isinf"
    )


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
        return _scalar(x, node.attributes[attribute])
    return node.optional(index)


def _scalar(x: Value, value: float) -> Known:
    return Known(np.asarray(value, np.dtype(x.dtype)), x.dtype)


@op("LeakyRelu")
def leaky_relu(b: Builder, node: Node) -> Value:
    """x where it is not negative, alpha * x elsewhere."""
    x = node.value(0)
    zero = _scalar(x, 0)
    return ew.where(
        b,
        ew.compare(b, x, zero, "less"),
        ew.multiply(b, x, _scalar(x, node.attr("alpha", 0.01))),
        x,
    )


@op("HardSigmoid")
def hard_sigmoid(b: Builder, node: Node) -> Value:
    """alpha * x + beta limited to [0, 1]."""
    x = node.value(0)
    line = ew.add(
        b,
        ew.multiply(b, x, _scalar(x, node.attr("alpha", 0.2))),
        _scalar(x, node.attr("beta", 0.5)),
    )
    return _limited(b, line)


def _limited(b: Builder, x: Value) -> Value:
    return extremes.lesser(b, extremes.greater(b, x, _scalar(x, 0)), _scalar(x, 1))


@op("HardSwish", since=14)
def hard_swish(b: Builder, node: Node) -> Value:
    """x * limited(x / 6 + 1/2)."""
    x = node.value(0)
    return ew.multiply(
        b, x, _limited(b, ew.add(b, ew.multiply(b, x, _scalar(x, 1 / 6)), _scalar(x, 0.5)))
    )


@op("Gelu", since=20)
def gelu(b: Builder, node: Node) -> Value:
    """x * Phi(x), exact by erf or approximate by tanh."""
    x = node.value(0)
    by_tanh = node.attr("approximate", "none") == "tanh"
    if x.dtype in pw.HALF_PRECISION:
        return pw.in_float(b, lambda item: fn.gelu(item, by_tanh), x, name="gelu")
    emit = relax.op.nn.gelu_tanh if by_tanh else relax.op.nn.gelu
    return b.emit(emit(b.tensor(x).expr), x.shape)


@op("PRelu", since=7)
def prelu(b: Builder, node: Node) -> Value:
    """x where it is not negative, slope * x elsewhere; the slope broadcasts to x."""
    x, slope = node.value(0), node.value(1)
    return ew.where(b, ew.compare(b, x, _scalar(x, 0), "less"), ew.multiply(b, x, slope), x)
