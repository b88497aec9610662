"""Elementwise functions of one tensor."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.aten.node import Node, Spectrum
from compiler.ir.aten.operands import scalar, to_float
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import functions
from compiler.ir.ops.pointwise import programs as pw


def of_float(
    b: Builder, x: Value, emit: functions.Emit, fold: functions.Fold | None = None
) -> Value:
    """A function of floats: integers become floats first."""
    return functions.of_floats(b, to_float(b, x), emit, fold)


_ALIASES = {"erf": "special_erf", "sigmoid": "special_expit"}


def _register(name: str, emit: functions.Emit, fold: functions.Fold | None) -> None:
    aliases = [f"arc{name[1:]}"] if name.startswith("a") else []
    aliases += [_ALIASES[name]] if name in _ALIASES else []

    @op(name, *aliases)
    def handler(b: Builder, node: Node) -> Value:
        return of_float(b, node.value("self"), emit, fold)

    handler.__doc__ = f"{name}, elementwise."


for _name, (_emit, _fold) in functions.OF_FLOATS.items():
    _register(_name, _emit, _fold)


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
    return functions.negative(b, node.value("self"))


@op("abs", "absolute")
def absolute(b: Builder, node: Node) -> Value:
    """|self|, also of complex numbers."""
    x = node.get("self")
    if isinstance(x, Spectrum):
        return norm.sqrt(
            b,
            ew.add(b, *(ew.multiply(b, part, part) for part in (x.real, x.imaginary))),
        )
    return functions.absolute(b, node.value("self"))


@op("square")
def square(b: Builder, node: Node) -> Value:
    """self * self."""
    x = node.value("self")
    return ew.multiply(b, x, x)


@op("sign", "sgn")
def sign(b: Builder, node: Node) -> Value:
    """-1, 0 or 1; 0 for a NaN."""
    return functions.sign(b, node.value("self"), keep_nan=False)


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
            symbolic=lambda v: functions.round_extent(v, scalar_of),
        )

    handler.__doc__ = f"{name}, elementwise; integers stay as they are."


def _to_decimals(b: Builder, x: Value, unit: float) -> Value:
    return pw.in_float(
        b, lambda v: tirx.nearbyint(v * pw.like(v, unit)) / pw.like(v, unit), x, name="round"
    )


def _emit_integral(b: Builder, x: Value, scalar_of: Callable[[Any], Any], name: str) -> relax.Expr:
    return b.tensor(pw.in_float(b, scalar_of, x, name=name)).expr


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
