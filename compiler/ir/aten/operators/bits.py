"""Functions of the sign, exponent and mantissa of floats, and of the divisors of integers."""

from typing import Any

from tvm import tirx

from compiler.ir.aten.algebra import argument
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, pair
from compiler.ir.aten.registry import op
from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math.loops import by_loops
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.shape import layout

_STEPS_OF_EUCLID = 92
"""Remainders that two integers of 64 bits have at most, those of Fibonacci's numbers."""


def _bits(v: Any) -> Any:
    """A float's bits as a signed integer of its size."""
    return tirx.reinterpret("int64" if v.ty.dtype == "float64" else "int32", v)


@op("copysign")
def copysign(b: Builder, node: Node) -> Value:
    """The size of self with the sign of other, also of a zero."""
    return pw.in_float(b, _with_sign, *pair(b, node, floating=True), name="copysign")


def _with_sign(p: Any, q: Any) -> Any:
    size = tirx.abs(p)
    return tirx.Select(_bits(q) < tirx.const(0, _bits(q).ty.dtype), -size, size)


@op("signbit")
def signbit(b: Builder, node: Node) -> Value:
    """True where an element is negative, or a zero or NaN with the sign."""
    x = node.value("self")
    if x.dtype == "bool" or x.dtype.startswith("uint"):
        return ew.compare(b, x, x, "not_equal")
    if not ew.is_float(x.dtype):
        return pw.pointwise(b, lambda v: v < pw.like(v, 0), x, name="signbit")
    wide = ew.cast(b, x, "float32") if x.dtype in pw.HALF_PRECISION else x
    return pw.pointwise(
        b, lambda v: _bits(v) < tirx.const(0, _bits(v).ty.dtype), wide, name="signbit"
    )


@op("ldexp")
def ldexp(b: Builder, node: Node) -> Value:
    """self * 2 ** other."""
    x, y = pair(b, node, floating=True)
    return pw.in_float(b, lambda p, q: p * tirx.power(pw.like(q, 2), q), x, y, name="ldexp")


@op("nextafter")
def nextafter(b: Builder, node: Node) -> Value:
    """The float next to self in the direction of other."""
    x, y = pair(b, node)
    if x.dtype in pw.HALF_PRECISION:
        node.fail(f"nextafter of {x.dtype} is not supported", reason="unsupported_dtype")
    return pw.pointwise(b, _next, x, y, name="nextafter")


def _next(p: Any, q: Any) -> Any:
    zero, bits = pw.like(p, 0), _bits(p)
    one = tirx.const(1, bits.ty.dtype)
    # Away from zero the bits count up, whatever the sign.
    away = tirx.Or(tirx.And(q > p, p > zero), tirx.And(q < p, p < zero))
    moved = tirx.reinterpret(p.ty.dtype, tirx.Select(away, bits + one, bits - one))
    least = tirx.reinterpret(p.ty.dtype, one)
    stepped = tirx.Select(tirx.EQ(p, zero), tirx.Select(q > zero, least, -least), moved)
    same = tirx.Select(tirx.EQ(p, q), q, stepped)
    return tirx.Select(tirx.Or(tirx.isnan(p), tirx.isnan(q)), p + q, same)


@op("frexp")
def frexp(b: Builder, node: Node) -> list[Value]:
    """A mantissa of size [0.5, 1) and the power of two that makes the element of it; zeros,
    infinities and NaN are their own mantissa.
    """
    x = node.value("self")
    wide = ew.cast(b, x, "float64")
    exponent = ew.cast(b, pw.pointwise(b, _exponent, wide, name="exponent"), "int32")
    mantissa = pw.pointwise(b, _mantissa, wide, name="mantissa")
    return [ew.cast(b, mantissa, x.dtype), exponent]


_FIELD, _BIAS, _MANTISSA_BITS = 0x7FF, 1022, 52


def _field(v: Any) -> Any:
    return (_bits(v) >> tirx.const(_MANTISSA_BITS, "int64")) & tirx.const(_FIELD, "int64")


def _is_plain(v: Any) -> Any:
    return tirx.And(tirx.Not(tirx.EQ(v, pw.like(v, 0))), _field(v) < tirx.const(_FIELD, "int64"))


def _exponent(v: Any) -> Any:
    return tirx.Select(_is_plain(v), _field(v) - tirx.const(_BIAS, "int64"), tirx.const(0, "int64"))


def _mantissa(v: Any) -> Any:
    """Subnormal float32 are ordinary float64, in which this is computed."""
    cleared = _bits(v) & tirx.const(~(_FIELD << _MANTISSA_BITS), "int64")
    bits = cleared | tirx.const(_BIAS << _MANTISSA_BITS, "int64")
    return tirx.Select(_is_plain(v), tirx.reinterpret("float64", bits), v)


@op("gcd", "lcm")
def common_divisor(b: Builder, node: Node) -> Value:
    """The greatest common divisor, or the least common multiple, of integers."""
    x, y = pair(b, node)
    zero = tirx.const(0, x.dtype)

    def element(left: Any, right: Any) -> Any:
        p = loop_programs.cell(x.dtype, tirx.abs(left))
        q = loop_programs.cell(x.dtype, tirx.abs(right))
        with (
            loop_programs.serial(_STEPS_OF_EUCLID),
            loop_programs.when(tirx.Not(tirx.EQ(q[0], zero))),
        ):
            rest = loop_programs.cell(x.dtype, tirx.truncmod(p[0], q[0]))
            p[0] = q[0]
            q[0] = rest[0]
        return p[0]

    result = by_loops(b, element, (x, y), x.dtype, work=_STEPS_OF_EUCLID, name="gcd")
    if node.kind == "aten::gcd":
        return result
    return pw.pointwise(b, _multiple, x, y, result, name="lcm")


def _multiple(p: Any, q: Any, divisor: Any) -> Any:
    zero = pw.like(p, 0)
    none = tirx.EQ(divisor, zero)
    safe = tirx.Select(none, pw.like(p, 1), divisor)
    return tirx.Select(none, zero, tirx.abs(tirx.truncdiv(p, safe) * q))


@op("isreal")
def isreal(b: Builder, node: Node) -> Value:
    """True: no tensor of ours is complex."""
    x = argument(b, node, "self").cast("bool")
    return (~(x & ~x)).value


@op("sum_to_size")
def sum_to_size(b: Builder, node: Node) -> Value:
    """self summed over the axes that broadcasting from a shape has added or spread."""
    x, sizes = argument(b, node, "self"), node.sizes("size")
    lead = x.rank - len(sizes)
    spread = [
        lead + axis
        for axis, size in enumerate(sizes)
        if b.facts.same(size, 1) is True and b.facts.same(x.shape[lead + axis], 1) is not True
    ]
    return x.reduce("sum", spread, True).reduce("sum", list(range(lead))).value


@op("addr")
def addr(b: Builder, node: Node) -> Value:
    """beta * self + alpha * the outer product of vec1 and vec2."""
    dtype = node.value("self").dtype
    lhs, rhs = (to_dtype(b, node, name, dtype) for name in ("vec1", "vec2"))
    outer = ew.multiply(b, layout.unsqueeze(b, lhs, [1]), layout.unsqueeze(b, rhs, [0]))
    alpha, beta = node.get("alpha", 1), node.get("beta", 1)
    if alpha != 1:
        outer = ew.multiply(b, outer, operand(b, node, alpha, dtype))
    if beta == 0:
        return outer
    x = node.value("self")
    return ew.add(b, x if beta == 1 else ew.multiply(b, x, operand(b, node, beta, dtype)), outer)


def to_dtype(b: Builder, node: Node, name: str, dtype: str) -> Value:
    """A tensor argument in a dtype."""
    return ew.cast(b, node.value(name), dtype)
