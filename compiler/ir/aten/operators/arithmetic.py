"""Elementwise arithmetic of two operands."""

from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.aten.node import Measured, Node
from compiler.ir.aten.operands import common, operand, pair, scalar
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import division
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import extremes
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.index_bounds import Limit


def _scaled(b: Builder, node: Node, x: Value) -> Value:
    alpha = node.get("alpha", 1)
    return (
        x
        if isinstance(alpha, (int, float)) and alpha == 1
        else ew.multiply(b, x, scalar(b, alpha, x.dtype))
    )


@op("add")
def add(b: Builder, node: Node) -> Value:
    """self + alpha * other; of bool, or."""
    x, y = pair(b, node)
    return _either(b, x, y) if x.dtype == "bool" else ew.add(b, x, _scaled(b, node, y))


@op("sub", "subtract")
def sub(b: Builder, node: Node) -> Value:
    """self - alpha * other."""
    x, y = pair(b, node)
    return ew.subtract(b, x, _scaled(b, node, y))


@op("rsub")
def rsub(b: Builder, node: Node) -> Value:
    """other - alpha * self."""
    x, y = pair(b, node)
    return ew.subtract(b, y, _scaled(b, node, x))


@op("mul", "multiply")
def mul(b: Builder, node: Node) -> Value:
    """self * other; of bool, and."""
    x, y = pair(b, node)
    return _both(b, x, y) if x.dtype == "bool" else ew.multiply(b, x, y)


def _both(b: Builder, x: Value, y: Value) -> Value:
    return ew.binary(b, x, y, relax.op.logical_and, numpy=np.logical_and, symbolic=ex.both)


def _either(b: Builder, x: Value, y: Value) -> Value:
    return ew.binary(b, x, y, relax.op.logical_or, numpy=np.logical_or, symbolic=ex.either)


@op("div", "divide", "true_divide")
def div(b: Builder, node: Node) -> Value:
    """self / other as floats, or rounded down or towards zero in their own dtype."""
    mode = node.get("rounding_mode", None)
    if mode is None:
        return ew.divide(b, *pair(b, node, floating=True))
    x, y = _dividing(b, node)
    return floor_division(b, x, y) if mode == "floor" else _truncated(b, x, y)


def _dividing(b: Builder, node: Node) -> tuple[Value, Value]:
    """The operands of a division; where integers are divided, sample inputs hold no zero."""
    x, y = pair(b, node)
    if ew.is_integer(x.dtype):
        raw = list(node.raw.inputs())[node.names.index("other")]
        node.scope.model.indexed.append((raw, Limit(1, division.MOST_DIVISOR)))
    return x, y


@op("floor_divide")
def floor_divide(b: Builder, node: Node) -> Value:
    """self / other rounded down."""
    return floor_division(b, *_dividing(b, node))


def floor_division(b: Builder, x: Value, y: Value) -> Value:
    """The quotient rounded down, of floats as torch corrects it: exact where the quotient is near
    an integer.
    """
    if not ew.is_float(x.dtype):
        return division.quotient(b, x, y, division.Direction.DOWN)
    return pw.in_float(b, _floor_quotient, x, y, name="floor_divide")


def _floor_quotient(p: Any, q: Any) -> Any:
    rest = division.fmod(p, q)
    zero, one, half = pw.like(p, 0), pw.like(p, 1), pw.like(p, 0.5)
    exact = (p - rest) / q
    astray = _astray(rest, q)
    exact = tirx.Select(astray, exact - one, exact)
    down = tirx.floor(exact)
    return tirx.Select(tirx.EQ(q, zero), p / q, tirx.Select(exact - down > half, down + one, down))


def _astray(rest: Any, divisor: Any) -> Any:
    """True where a remainder lacks the divisor's sign."""
    zero = pw.like(rest, 0)
    return tirx.Or(tirx.And(rest > zero, divisor < zero), tirx.And(rest < zero, divisor > zero))


def _truncated(b: Builder, x: Value, y: Value) -> Value:
    if not ew.is_float(x.dtype):
        return division.quotient(b, x, y, division.Direction.TO_ZERO)
    return ew.unary(b, ew.divide(b, x, y), relax.op.trunc, numpy=np.trunc)


@op("remainder")
def remainder(b: Builder, node: Node) -> Value:
    """The remainder of a division rounded down: it has the sign of `other`."""
    x, y = _dividing(b, node)
    if not ew.is_float(x.dtype):
        return division.remainder(b, x, y, division.Direction.DOWN)
    return pw.in_float(b, _floor_rest, x, y, name="remainder")


def _floor_rest(p: Any, q: Any) -> Any:
    rest = division.fmod(p, q)
    astray = _astray(rest, q)
    return tirx.Select(astray, rest + q, rest)


@op("fmod")
def fmod(b: Builder, node: Node) -> Value:
    """The remainder of a division rounded towards zero: it has the sign of `self`."""
    x, y = _dividing(b, node)
    if ew.is_float(x.dtype):
        return pw.in_float(b, division.fmod, x, y, name="fmod")
    return division.remainder(b, x, y, division.Direction.TO_ZERO)


@op("pow", "float_power")
def power(b: Builder, node: Node) -> Value:
    """self to the power `exponent`."""
    base, exponent = node.get("self"), node.get("exponent")
    dtype = common(node, base, exponent)
    if node.kind == "aten::float_power":
        dtype = "float64"
    x = operand(b, node, base, dtype)
    simple = _simple_power(b, x, exponent)
    if simple is not None:
        return simple
    if not ew.is_float(dtype):
        wide = [operand(b, node, item, "float64") for item in (base, exponent)]
        return ew.cast(b, ew.binary(b, wide[0], wide[1], relax.op.power, numpy=np.power), dtype)
    y = operand(b, node, exponent, dtype)
    if dtype in pw.HALF_PRECISION:
        return pw.in_float(b, tirx.power, x, y, name="power")
    return ew.binary(b, x, y, relax.op.power, numpy=np.power)


def _simple_power(b: Builder, x: Value, exponent: Any) -> Value | None:
    """Small constant exponents as products and roots."""
    if isinstance(exponent, Measured) or not isinstance(exponent, (int, float)):
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return ew.multiply(b, x, x)
    if exponent == 3:
        return ew.multiply(b, ew.multiply(b, x, x), x)
    if exponent in (0.5, -0.5) and ew.is_float(x.dtype):
        root = ew.unary(b, x, relax.op.sqrt, numpy=np.sqrt)
        return root if exponent > 0 else ew.divide(b, scalar(b, 1, x.dtype), root)
    if exponent == -1 and ew.is_float(x.dtype):
        return ew.divide(b, scalar(b, 1, x.dtype), x)
    return None


@op("maximum")
def maximum(b: Builder, node: Node) -> Value:
    """The greater of both."""
    return greater_of(b, *pair(b, node))


@op("minimum")
def minimum(b: Builder, node: Node) -> Value:
    """The lesser of both."""
    return lesser_of(b, *pair(b, node))


@op("fmax", "fmin")
def numeric_extreme(b: Builder, node: Node) -> Value:
    """The greater or lesser of both; of a NaN and a number, the number."""
    x, y = pair(b, node)
    greatest = node.kind == "aten::fmax"
    if not ew.is_float(x.dtype):
        return greater_of(b, x, y) if greatest else lesser_of(b, x, y)
    of = tirx.max if greatest else tirx.min
    return pw.in_float(
        b, lambda p, q: tirx.Select(tirx.isnan(q), p, of(p, q)), x, y, name="extreme"
    )


def greater_of(b: Builder, x: Value, y: Value) -> Value:
    """Elementwise maximum, NaN where one of both is."""
    if x.dtype == "bool":
        return _either(b, x, y)
    return extremes.greater(b, x, y)


def lesser_of(b: Builder, x: Value, y: Value) -> Value:
    """Elementwise minimum, NaN where one of both is."""
    if x.dtype == "bool":
        return _both(b, x, y)
    return extremes.lesser(b, x, y)


@op("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def clamp(b: Builder, node: Node) -> Value:
    """self limited to [min, max]; either may be None."""
    x = node.get("self")
    low = node.get("min", node.get("min_val", None))
    high = node.get("max", node.get("max_val", None))
    bounds = [bound for bound in (low, high) if bound is not None]
    dtype = node.value("self").dtype if node.kind == "aten::hardtanh" else common(node, x, *bounds)
    value = operand(b, node, x, dtype)
    if low is not None:
        value = greater_of(b, operand(b, node, low, dtype), value)
    return value if high is None else lesser_of(b, operand(b, node, high, dtype), value)


@op("addcmul")
def addcmul(b: Builder, node: Node) -> Value:
    """self + value * tensor1 * tensor2."""
    x, p, q, factor = _combined(b, node)
    return ew.add(b, x, ew.multiply(b, ew.multiply(b, factor, p), q))


@op("addcdiv")
def addcdiv(b: Builder, node: Node) -> Value:
    """self + value * tensor1 / tensor2."""
    x, p, q, factor = _combined(b, node)
    return ew.add(b, x, division.divide(b, ew.multiply(b, factor, p), q))


def _combined(b: Builder, node: Node) -> tuple[Value, Value, Value, Value]:
    items = [node.get(name) for name in ("self", "tensor1", "tensor2")]
    dtype = common(node, *items)
    x, p, q = (operand(b, node, item, dtype) for item in items)
    return x, p, q, scalar(b, node.get("value", 1), dtype)


@op("lerp")
def lerp(b: Builder, node: Node) -> Value:
    """self + weight * (end - self)."""
    x, end = pair(b, node, "self", "end")
    return ew.add(
        b, x, ew.multiply(b, operand(b, node, node.get("weight"), x.dtype), ew.subtract(b, end, x))
    )


@op("atan2", "arctan2")
def atan2(b: Builder, node: Node) -> Value:
    """The angle of the point (other, self)."""
    return angle_of(b, *pair(b, node, floating=True))


def angle_of(b: Builder, x: Value, y: Value) -> Value:
    """The angle of the point (y, x)."""
    return pw.in_float(
        b,
        lambda p, q: tirx.call_pure_extern(
            p.ty.dtype, "atan2" if p.ty.dtype == "float64" else "atan2f", p, q
        ),
        x,
        y,
        name="atan2",
    )


@op("where")
def where(b: Builder, node: Node) -> Any:
    """self where the condition holds, else other; without them, the coordinates at which
    it holds.
    """
    if "other" not in node.names:
        from compiler.ir.aten.operators.indexing import coordinates, with_axis

        return coordinates(b, with_axis(b, node.value("condition")))
    x, y = pair(b, node)
    return ew.where(b, ew.cast(b, node.value("condition"), "bool"), x, y)


@op("masked_fill")
def masked_fill(b: Builder, node: Node) -> Value:
    """`value` where the mask holds, self elsewhere, in self's dtype."""
    x = node.value("self")
    return ew.where(
        b, ew.cast(b, node.value("mask"), "bool"), operand(b, node, node.get("value"), x.dtype), x
    )
