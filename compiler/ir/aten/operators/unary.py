"""Elementwise functions of one tensor."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import Expr as PrimExpr

from compiler.ir.aten.node import Node, Spectrum
from compiler.ir.aten.operands import scalar, to_float
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex


def of_float(
    b: Builder,
    x: Value,
    emit: Callable[[relax.Expr], relax.Expr],
    fold: Callable[[Any], Any] | None = None,
) -> Value:
    """A function of floats: integers become floats first, 16-bit floats are worked out in
    float32.
    """
    x = to_float(b, x)
    if x.dtype in pw.HALF_PRECISION:
        return ew.cast(b, ew.unary(b, ew.cast(b, x, "float32"), emit, numpy=fold), x.dtype)
    return ew.unary(b, x, emit, numpy=fold)


def _register(
    names: tuple[str, ...],
    emit: Callable[[relax.Expr], relax.Expr],
    fold: Callable[[Any], Any] | None,
) -> None:
    @op(*names)
    def handler(b: Builder, node: Node) -> Value:
        return of_float(b, node.value("self"), emit, fold)

    handler.__doc__ = f"{names[0]}, elementwise."


_R = relax.op
for _names, _emit, _fold in (
    (("exp",), _R.exp, np.exp), (("log",), _R.log, np.log), (("sqrt",), _R.sqrt, np.sqrt),
    (("sin",), _R.sin, np.sin), (("cos",), _R.cos, np.cos), (("tan",), _R.tan, np.tan),
    (("asin", "arcsin"), _R.asin, np.arcsin), (("acos", "arccos"), _R.acos, np.arccos), (("atan",
    "arctan"), _R.atan, np.arctan),
    (("sinh",), _R.sinh, np.sinh), (("cosh",), _R.cosh, np.cosh), (("tanh",), _R.tanh, np.tanh),
    (("asinh", "arcsinh"), _R.asinh, np.arcsinh), (("acosh", "arccosh"), _R.acosh, np.arccosh),
    (("atanh", "arctanh"), _R.atanh, np.arctanh),
    (("erf", "special_erf"), _R.erf, None), (("sigmoid", "special_expit"), _R.sigmoid, None),
):  # fmt: skip
    _register(_names, _emit, _fold)


@op("log2")
def log2(b: Builder, node: Node) -> Value:
    """Logarithm to base 2."""
    return _logarithm(b, node, 2)


@op("log10")
def log10(b: Builder, node: Node) -> Value:
    """Logarithm to base 10."""
    return _logarithm(b, node, 10)


def _logarithm(b: Builder, node: Node, base: int) -> Value:
    natural = of_float(b, node.value("self"), relax.op.log, np.log)
    return ew.multiply(b, natural, scalar(b, 1 / np.log(base), natural.dtype))


@op("exp2", "special_exp2")
def exp2(b: Builder, node: Node) -> Value:
    """2 to the power self."""
    x = to_float(b, node.value("self"))
    return of_float(b, ew.multiply(b, x, scalar(b, np.log(2), x.dtype)), relax.op.exp, np.exp)


@op("log1p", "special_log1p")
def log1p(b: Builder, node: Node) -> Value:
    """log(1 + self), exact near zero."""
    x = to_float(b, node.value("self"))
    return pw.in_float(
        b, lambda v: tirx.Select(v > pw.like(v, 1e30), tirx.log(v), fn.log1p(v)), x, name="log1p"
    )


@op("expm1", "special_expm1")
def expm1(b: Builder, node: Node) -> Value:
    """exp(self) - 1, exact near zero."""
    x = to_float(b, node.value("self"))
    return pw.in_float(
        b,
        lambda v: tirx.Select(
            # Of an unordered pair TVM's minimum is the second one.
            v > pw.like(v, 40),
            tirx.exp(v),
            fn.expm1(tirx.min(pw.like(v, 40), v)),
        ),
        x,
        name="expm1",
    )


@op("rsqrt")
def rsqrt(b: Builder, node: Node) -> Value:
    """1 / sqrt(self)."""
    root = of_float(b, node.value("self"), relax.op.sqrt, np.sqrt)
    return ew.divide(b, scalar(b, 1, root.dtype), root)


@op("reciprocal")
def reciprocal(b: Builder, node: Node) -> Value:
    """1 / self."""
    x = to_float(b, node.value("self"))
    return ew.divide(b, scalar(b, 1, x.dtype), x)


@op("neg", "negative")
def neg(b: Builder, node: Node) -> Value:
    """-self."""
    return ew.unary(
        b, node.value("self"), relax.op.negative, numpy=np.negative, symbolic=lambda v: ex.sub(0, v)
    )


@op("abs", "absolute")
def absolute(b: Builder, node: Node) -> Value:
    """|self|, also of complex numbers."""
    x = node.get("self")
    if isinstance(x, Spectrum):
        return norm.sqrt(
            b,
            ew.add(b, *(ew.multiply(b, part, part) for part in (x.real, x.imaginary))),
        )
    return ew.unary(
        b,
        node.value("self"),
        relax.op.abs,
        numpy=np.abs,
        symbolic=lambda v: ex.select(ex.less(v, 0), ex.sub(0, v), v),
    )


@op("square")
def square(b: Builder, node: Node) -> Value:
    """self * self."""
    x = node.value("self")
    return ew.multiply(b, x, x)


@op("sign", "sgn")
def sign(b: Builder, node: Node) -> Value:
    """-1, 0 or 1; 0 for a NaN."""
    x = node.value("self")
    if isinstance(x, Known) and not x.symbolic:
        return Known(np.sign(x.data), x.dtype)

    def sign_of(v: Any) -> Any:
        one, zero = pw.like(v, 1), pw.like(v, 0)
        negative = zero if x.dtype.startswith("uint") else pw.like(v, -1)
        return tirx.Select(v > zero, one, tirx.Select(v < zero, negative, zero))

    return pw.pointwise(b, sign_of, x, name="sign")


def _integral(
    name: str, fold: Callable[[Any], Any], scalar_of: Callable[[Any], Any], *aliases: str
) -> None:
    @op(name, *aliases)
    def handler(b: Builder, node: Node) -> Value:
        x = node.value("self")
        if not ew.is_float(x.dtype):
            return x
        if node.get("decimals", 0):
            return _to_decimals(b, x, 10.0 ** node.int("decimals"))
        return ew.unary(
            b,
            x,
            lambda v: _emit_integral(b, x, scalar_of, name),
            numpy=fold,
            symbolic=lambda v: _integral_extent(v, scalar_of),
        )

    handler.__doc__ = f"{name}, elementwise; integers stay as they are."


def _to_decimals(b: Builder, x: Value, unit: float) -> Value:
    return pw.in_float(
        b, lambda v: tirx.nearbyint(v * pw.like(v, unit)) / pw.like(v, unit), x, name="round"
    )


def _emit_integral(b: Builder, x: Value, scalar_of: Callable[[Any], Any], name: str) -> relax.Expr:
    return b.tensor(pw.in_float(b, scalar_of, x, name=name)).expr


def _integral_extent(item: Any, scalar_of: Callable[[Any], Any]) -> Any:
    """A plain number by `scalar_of`; a float that was cast from an integer stays as it is."""
    if isinstance(item, tirx.Cast) and item.value.ty.dtype == "int64":
        return item
    return scalar_of(item) if isinstance(item, PrimExpr) else item


_integral("floor", np.floor, tirx.floor)
_integral("ceil", np.ceil, tirx.ceil)
_integral("trunc", np.trunc, tirx.trunc)
_integral("fix", np.trunc, tirx.trunc)
_integral("round", np.rint, tirx.nearbyint, "special_round")


@op("frac")
def frac(b: Builder, node: Node) -> Value:
    """self less its whole part."""
    return pw.in_float(b, lambda v: v - tirx.trunc(v), node.value("self"), name="frac")


@op("nan_to_num")
def nan_to_num(b: Builder, node: Node) -> Value:
    """NaN as `nan` (0), infinities as `posinf` and `neginf` (the greatest and least
    finite number).
    """
    x = node.value("self")
    if not ew.is_float(x.dtype):
        return x
    high = (
        float(np.finfo(np.dtype(x.dtype)).max) if x.dtype != "bfloat16" else 3.3895313892515355e38
    )
    nan, above, below = (
        node.get(name) if node.get(name) is not None else value
        for name, value in (("nan", 0.0), ("posinf", high), ("neginf", -high))
    )

    def finite_of(v: Any) -> Any:
        infinity = pw.like(v, float("inf"))
        finite = tirx.Select(
            tirx.EQ(v, infinity),
            pw.like(v, above),
            tirx.Select(tirx.EQ(v, -infinity), pw.like(v, below), v),
        )
        return tirx.Select(tirx.isnan(v), pw.like(v, nan), finite)

    return pw.in_float(b, finite_of, x, name="nan_to_num")
