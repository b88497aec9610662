"""Bessel's and Airy's functions, in float64: power series near zero, asymptotic expansions beyond.

Equations are those of the Digital Library of Mathematical Functions (DLMF).
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tvm import tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import to_float
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw

_EULER = 0.57721566490153286
_TERMS = 45


def constant(value: float) -> Any:
    """A float64."""
    return tirx.const(value, "float64")


def evaluate(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial by Horner's scheme, the highest power first."""
    first, *rest = coefficients
    return reduce(lambda total, c: total * x + constant(c), rest, constant(first))


def in_double(b: Builder, function: Callable[..., Any], *values: Value, name: str) -> Value:
    """A function of elements computed in float64, in the dtype of the first value."""
    wide = [ew.cast(b, value, "float64") for value in values]
    return ew.cast(b, pw.pointwise(b, function, *wide, name=name), values[0].dtype)


def register_double(name: str, function: Callable[[Any], Any], *aliases: str) -> None:
    """Register a function of one operand that is computed in float64."""

    def of_number(x: Any) -> Any:
        # Of an unordered pair TVM's extremes are the second one.
        return tirx.Select(tirx.isnan(x), x, function(x))

    @op(name, *aliases)
    def handler(b: Builder, node: Node) -> Value:
        return in_double(b, of_number, to_float(b, node.value(node.names[0])), name=name)

    handler.__doc__ = f"{name}, elementwise."


def _series(order: int, sign: int, weight: Callable[[int], float]) -> list[float]:
    """Coefficients of sign**k * weight(k) * t**k / (k! * (k + order)!), the highest first."""
    return [
        sign**k * weight(k) / (math.factorial(k) * math.factorial(k + order))
        for k in range(_TERMS, -1, -1)
    ]


def _harmonic(k: int) -> float:
    return sum(1 / j for j in range(1, k + 1))


def _psi_sum(k: int) -> float:
    """digamma(k + 1) + digamma(k + 2)."""
    return _harmonic(k) + _harmonic(k + 1) - 2 * _EULER


def _power_series(x: Any, order: int, sign: int) -> Any:
    """J (sign -1) or I (sign 1) of an order (DLMF 10.2.2, 10.25.2)."""
    total = evaluate(x * x * constant(0.25), _series(order, sign, lambda k: 1.0))
    return total * x * constant(0.5) if order else total


def _expansion(order: int, terms: int) -> list[float]:
    """The coefficients a(k) of Hankel's expansions (DLMF 10.17.1)."""
    values = [1.0]
    for k in range(1, terms):
        values.append(values[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return values


_HANKEL_FROM, _HANKEL_TERMS = 12.0, 20


def _hankel(x: Any, order: int, second: bool) -> Any:
    """J or Y for large x (DLMF 10.17.3, 10.17.4); NaN at infinity, as torch has it."""
    a = _expansion(order, _HANKEL_TERMS)
    inverse = constant(1) / x
    square = inverse * inverse
    even = evaluate(square, [(-1) ** k * v for k, v in enumerate(a[0::2])][::-1])
    odd = inverse * evaluate(square, [(-1) ** k * v for k, v in enumerate(a[1::2])][::-1])
    angle = x - constant((order / 2 + 0.25) * math.pi)
    scale = tirx.sqrt(constant(2 / math.pi) * inverse)
    if second:
        return scale * (tirx.sin(angle) * even + tirx.cos(angle) * odd)
    return scale * (tirx.cos(angle) * even - tirx.sin(angle) * odd)


def _j(order: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        size = tirx.abs(x)
        near = _power_series(tirx.min(size, constant(_HANKEL_FROM)), order, -1)
        far = _hankel(tirx.max(size, constant(_HANKEL_FROM)), order, False)
        value = tirx.Select(size < constant(_HANKEL_FROM), near, far)
        return tirx.Select(x < constant(0), -value, value) if order else value

    return function


def _y(order: int) -> Callable[[Any], Any]:
    """DLMF 10.8.1 and 10.8.2; minus infinity at 0, NaN below."""

    def function(x: Any) -> Any:
        safe = tirx.Select(x > constant(0), x, constant(1))
        near = tirx.min(safe, constant(_HANKEL_FROM))
        t = near * near * constant(0.25)
        logarithm = tirx.log(near * constant(0.5))
        first = _power_series(near, order, -1)
        if order == 0:
            tail = evaluate(t, _series(0, -1, lambda k: -_harmonic(k)))
            low = constant(2 / math.pi) * ((logarithm + constant(_EULER)) * first + tail)
        else:
            tail = near * constant(0.5) * evaluate(t, _series(1, -1, _psi_sum))
            low = constant(1 / math.pi) * (constant(2) * logarithm * first - tail)
            low = low - constant(2 / math.pi) / near
        far = _hankel(tirx.max(safe, constant(_HANKEL_FROM)), order, True)
        value = tirx.Select(safe < constant(_HANKEL_FROM), low, far)
        return _where_positive(x, value, -math.inf)

    return function


def _where_positive(x: Any, value: Any, at_zero: float) -> Any:
    below = tirx.Select(x < constant(0), constant(math.nan), constant(at_zero))
    return tirx.Select(tirx.isnan(x), x, tirx.Select(x > constant(0), value, below))


_K_FROM, _K_TERMS = 9.0, 17


def _k(order: int, scaled: bool) -> Callable[[Any], Any]:
    """DLMF 10.31.1, 10.31.2 and 10.40.2; infinite at 0, NaN below; scaled: times exp(x)."""

    def function(x: Any) -> Any:
        safe = tirx.Select(x > constant(0), x, constant(1))
        near = tirx.min(safe, constant(_K_FROM))
        t = near * near * constant(0.25)
        logarithm = tirx.log(near * constant(0.5))
        first = _power_series(near, order, 1)
        if order == 0:
            low = evaluate(t, _series(0, 1, _harmonic)) - (logarithm + constant(_EULER)) * first
        else:
            tail = near * constant(0.25) * evaluate(t, _series(1, 1, _psi_sum))
            low = constant(1) / near + logarithm * first - tail
        far = tirx.max(safe, constant(_K_FROM))
        expansion = evaluate(constant(1) / far, _expansion(order, _K_TERMS)[::-1])
        high = tirx.sqrt(constant(math.pi / 2) / far) * expansion
        low = low * tirx.exp(near) if scaled else low
        high = high if scaled else high * tirx.exp(-far)
        return _where_positive(x, tirx.Select(safe < constant(_K_FROM), low, high), math.inf)

    return function


_AI, _AI_SLOPE = 0.355028053887817239, 0.258819403792806798
_AIRY_NEAR, _AIRY_LEFT, _AIRY_TERMS = 6.0, -8.0, 14


def _airy_coefficients() -> list[float]:
    """u(k) of DLMF 9.7.2."""
    values = [1.0]
    for k in range(1, _AIRY_TERMS):
        values.append(
            values[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1))
        )
    return values


def _airy_series(x: Any) -> Any:
    """DLMF 9.4.1."""
    cube, f, g = x * x * x, constant(1), constant(1)
    for k in range(_TERMS, 0, -1):
        f = constant(1) + cube / constant((3 * k - 1) * (3 * k)) * f
        g = constant(1) + cube / constant((3 * k) * (3 * k + 1)) * g
    return constant(_AI) * f - constant(_AI_SLOPE) * x * g


def _airy(x: Any) -> Any:
    """Ai: DLMF 9.4.1, 9.7.5 and 9.7.9."""
    u = _airy_coefficients()
    right, left = tirx.max(x, constant(_AIRY_NEAR)), tirx.max(-x, constant(-_AIRY_LEFT))
    near = tirx.max(constant(_AIRY_LEFT), tirx.min(x, constant(_AIRY_NEAR)))
    zeta = constant(2 / 3) * right * tirx.sqrt(right)
    decay = evaluate(constant(1) / zeta, [(-1) ** k * v for k, v in enumerate(u)][::-1])
    decay = (
        decay * tirx.exp(-zeta) / (constant(2 * math.sqrt(math.pi)) * tirx.sqrt(tirx.sqrt(right)))
    )
    zeta = constant(2 / 3) * left * tirx.sqrt(left)
    square = constant(1) / (zeta * zeta)
    even = evaluate(square, [(-1) ** k * v for k, v in enumerate(u[0::2])][::-1])
    odd = evaluate(square, [(-1) ** k * v for k, v in enumerate(u[1::2])][::-1]) / zeta
    angle = zeta - constant(math.pi / 4)
    wave = (tirx.cos(angle) * even + tirx.sin(angle) * odd) / (
        constant(math.sqrt(math.pi)) * tirx.sqrt(tirx.sqrt(left))
    )
    value = tirx.Select(x > constant(_AIRY_NEAR), decay, _airy_series(near))
    value = tirx.Select(x < constant(_AIRY_LEFT), wave, value)
    return tirx.Select(tirx.EQ(tirx.abs(x), constant(math.inf)), constant(math.nan), value)


def _spherical(x: Any) -> Any:
    """sin(x) / x."""
    zero = tirx.EQ(x, constant(0))
    value = tirx.sin(x) / tirx.Select(zero, constant(1), x)
    value = tirx.Select(zero, constant(1), value)
    return tirx.Select(tirx.EQ(tirx.abs(x), constant(math.inf)), constant(0), value)


for _order in (0, 1):
    register_double(f"special_bessel_j{_order}", _j(_order))
    register_double(f"special_bessel_y{_order}", _y(_order))
    register_double(f"special_modified_bessel_k{_order}", _k(_order, False))
    register_double(f"special_scaled_modified_bessel_k{_order}", _k(_order, True))
register_double("special_spherical_bessel_j0", _spherical)
register_double("special_airy_ai", _airy)
