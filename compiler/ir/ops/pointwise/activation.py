"""Activations as functions of one float element, written so that no intermediate overflows or
cancels.
"""

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.ir.ops.pointwise.programs import like


def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near zero (Kahan: (u - 1) * x / log(u) with u = exp(x)), for x below some
    80.
    """
    u = tirx.exp(x)
    one = like(x, 1)
    flat, gone = tirx.EQ(u, one), u - one <= like(x, -1)
    safe = tirx.Select(tirx.Or(flat, gone), like(x, 2), u)
    return tirx.Select(flat, x, tirx.Select(gone, like(x, -1), (u - one) * x / tirx.log(safe)))


def log1p(x: Any) -> Any:
    """log(1 + x), exact near zero (Kahan: log(u) * x / (u - 1) with u = 1 + x), for x >= 0."""
    u = like(x, 1) + x
    flat = tirx.EQ(u, like(x, 1))
    return tirx.Select(flat, x, tirx.log(u) * x / tirx.Select(flat, like(x, 1), u - like(x, 1)))


def below_zero(x: Any) -> Any:
    """min(x, 0), a NaN staying NaN."""
    return tirx.Select(x > like(x, 0), like(x, 0), x)


def elu(x: Any, alpha: float, gamma: float = 1.0, width: float = 1.0) -> Any:
    """gamma * (x where positive, alpha * (exp(x / width) - 1) elsewhere)."""
    low = like(x, alpha) * expm1(below_zero(x) / like(x, width))
    return like(x, gamma) * tirx.Select(x > like(x, 0), x, low)


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return tirx.max(x, like(x, 0)) + log1p(tirx.exp(-tirx.abs(x)))


def mish(x: Any) -> Any:
    """x * tanh(softplus(x)), as a ratio of polynomials in exp(-|x|)."""
    u = tirx.exp(-tirx.abs(x))
    two = like(x, 2)
    right = (like(x, 1) + two * u) / (like(x, 1) + two * u + two * u * u)
    left = u * (u + two) / (u * (u + two) + two)
    return x * tirx.Select(x > like(x, 0), right, left)


def swish(x: Any, alpha: float) -> Any:
    """x * sigmoid(alpha * x)."""
    return x / (like(x, 1) + tirx.exp(like(x, -alpha) * x))


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (like(x, 1) + tirx.abs(x))


def threshold(x: Any, alpha: float) -> Any:
    """x where it is above alpha, 0 elsewhere."""
    return tirx.Select(x > like(x, alpha), x, like(x, 0))


def shrink(x: Any, bias: float, limit: float) -> Any:
    """x + bias below -limit, x - bias above it, 0 between."""
    inner = tirx.Select(x > like(x, limit), x - like(x, bias), like(x, 0))
    return tirx.Select(x < like(x, -limit), x + like(x, bias), inner)


def gelu(x: Any, by_tanh: bool) -> Any:
    """x * Phi(x), exact or by the tanh approximation."""
    half, one = like(x, 0.5), like(x, 1)
    if not by_tanh:
        return half * x * (one + tirx.erf(x * like(x, math.sqrt(0.5))))
    return (
        half
        * x
        * (one + tirx.tanh(like(x, math.sqrt(2 / math.pi)) * (x + like(x, 0.044715) * x * x * x)))
    )


def leaky(x: Any, alpha: float) -> Any:
    """x where positive, alpha * x elsewhere."""
    return tirx.Select(x > like(x, 0), x, like(x, alpha) * x)


def hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    """alpha * x + beta, kept between 0 and 1."""
    return tirx.max(like(x, 0), tirx.min(like(x, 1), like(x, alpha) * x + like(x, beta)))


def logaddexp(base: float) -> Callable[[Any, Any], Any]:
    """The logarithm of base ** p + base ** q to the base, of floats p and q."""

    def function(p: Any, q: Any) -> Any:
        high, low = tirx.max(p, q), tirx.min(p, q)
        scale = like(p, math.log(base))
        apart = tirx.Select(tirx.EQ(high, low), like(p, 0), (low - high) * scale)
        total = high + tirx.log(like(p, 1) + tirx.exp(apart)) / scale
        return tirx.Select(tirx.isnan(p), p, tirx.Select(tirx.isnan(q), q, total))

    return function
