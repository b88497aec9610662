"""Special functions: of the gamma function's, of the error function's and of Bessel's families.

Each is computed in float64 and cast to its operand's dtype, by series, continued fractions and
asymptotic expansions of the Digital Library of Mathematical Functions, named where they are used.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import tirx

from compiler.ir.aten.algebra import Array
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import pair, to_float
from compiler.ir.aten.operators.bessel import constant, evaluate, in_double, register_double
from compiler.ir.aten.registry import op
from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math.loops import by_loops
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew

Function = Callable[[Any], Any]


def _select(condition: Any, then: Any, otherwise: Any) -> Any:
    return tirx.Select(condition, then, otherwise)


_LANCZOS = (
    *(0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313),
    *(-176.61502916214059, 12.507343278686905, -0.13857109526572012),
    *(9.9843695780195716e-6, 1.5056327351493116e-7),
)
"""Lanczos' approximation of the gamma function for g = 7 and nine terms."""


def _turn(x: Any) -> Any:
    """The part of x behind the point, times pi: sines and tangents of it are exact at integers."""
    return (x - tirx.floor(x)) * constant(math.pi)


def lgamma(x: Any) -> Any:
    """The logarithm of |gamma(x)|: Lanczos' approximation from 1/2 on, reflected below."""
    half = constant(0.5)
    reflected = x < half
    z = _select(reflected, -x, x - constant(1))
    series = constant(_LANCZOS[0])
    for index, coefficient in enumerate(_LANCZOS[1:], 1):
        series = series + constant(coefficient) / (z + constant(index))
    t = z + constant(7.5)
    core = constant(math.log(2 * math.pi) / 2) + (z + half) * tirx.log(t) - t + tirx.log(series)
    low = tirx.log(constant(math.pi) / tirx.abs(tirx.sin(_turn(x)))) - core
    infinity = constant(math.inf)
    return _select(tirx.EQ(tirx.abs(x), infinity), infinity, _select(reflected, low, core))


_STIRLING = (-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
_SHIFT = 8


def digamma(x: Any) -> Any:
    """The derivative of lgamma: eight steps up, then Stirling's series (DLMF 5.11.2)."""
    reflected = x < constant(0.5)
    y = _select(reflected, constant(1) - x, x)
    steps = reduce(lambda total, k: total + constant(1) / (y + constant(k)), range(_SHIFT),
                   constant(0))  # fmt: skip
    w = y + constant(_SHIFT)
    square = constant(1) / (w * w)
    core = tirx.log(w) - constant(0.5) / w + square * evaluate(square, _STIRLING) - steps
    low = core - constant(math.pi) / tirx.tan(_turn(x))
    integral = tirx.EQ(x, tirx.floor(x))
    low = _select(integral, constant(math.nan), low)
    at_zero = _select(tirx.reinterpret("int64", x) < tirx.const(0, "int64"),
                      constant(math.inf), constant(-math.inf))  # fmt: skip
    low = _select(tirx.EQ(x, constant(0)), at_zero, low)
    return _select(reflected, low, core)


register_double("lgamma", lgamma, "special_gammaln")
register_double("digamma", digamma, "special_digamma", "special_psi")


@op("mvlgamma", "special_multigammaln")
def mvlgamma(b: Builder, node: Node) -> Value:
    """The logarithm of the gamma function of p dimensions."""
    p = node.int("p")
    x = Array(b, ew.cast(b, to_float(b, node.value("self")), "float64"))
    terms = [(x - j / 2).map("lgamma", lgamma) for j in range(p)]
    total = reduce(lambda left, right: left + right, terms)
    result = total + p * (p - 1) / 4 * math.log(math.pi)
    return result.cast(to_float(b, node.value("self")).dtype).value


_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
"""B(2j) / (2j)! of the Euler-Maclaurin formula (DLMF 25.11.5)."""
_DIRECT, _MOST_TERMS = 10, 100_000


def _hurwitz(b: Builder, x: Value, q: Value, name: str) -> Value:
    """The sum of (q + k) ** -x over k from 0 on, of float64 of one shape: directly up to 10, then
    by the Euler-Maclaurin formula.
    """

    def element(s: Any, start: Any) -> Any:
        missing = tirx.ceil(constant(_DIRECT) - start)
        bounded = tirx.max(constant(0), tirx.min(missing, constant(_MOST_TERMS)))
        count = _select(tirx.isnan(start), constant(0), bounded).astype("int64")
        total = loop_programs.cell("float64", 0.0)
        with loop_programs.serial(count) as k:
            total[0] = total[0] + tirx.power(start + k.astype("float64"), -s)
        return _completed(s, start, start + count.astype("float64"), total[0])

    return by_loops(b, element, (x, q), "float64", work=64, name=name)


def _completed(s: Any, q: Any, a: Any, total: Any) -> Any:
    """The direct sum with what follows from a on; infinite at poles, NaN where it diverges."""
    one = constant(1)
    power = tirx.power(a, -s)
    tail = power * a / (s - one) + power * constant(0.5)
    factor = s
    power = power / a
    for j, coefficient in enumerate(_BERNOULLI):
        tail = tail + constant(coefficient) * factor * power
        factor = factor * (s + constant(2 * j + 1)) * (s + constant(2 * j + 2))
        power = power / (a * a)
    integral = tirx.EQ(q, tirx.floor(q))
    below = q <= constant(0)
    value = _select(
        tirx.And(below, integral),
        constant(math.inf),
        _select(
            tirx.And(below, tirx.Not(tirx.EQ(s, tirx.floor(s)))), constant(math.nan), total + tail
        ),
    )
    return _select(tirx.EQ(s, one), constant(math.inf), _select(s < one, constant(math.nan), value))


@op("special_zeta")
def zeta(b: Builder, node: Node) -> Value:
    """Hurwitz' zeta function."""
    x, q = pair(b, node, floating=True)
    shape = broadcast.joined_shape(b, x.shape, q.shape)
    wide = [broadcast.expand(b, ew.cast(b, value, "float64"), shape) for value in (x, q)]
    return ew.cast(b, _hurwitz(b, wide[0], wide[1], "zeta"), x.dtype)


@op("polygamma", "special_polygamma")
def polygamma(b: Builder, node: Node) -> Value:
    """The n-th derivative of digamma."""
    n, x = node.int("n"), to_float(b, node.value("self"))
    if n == 0:
        return in_double(b, digamma, x, name="digamma")
    wide = Array(b, ew.cast(b, x, "float64"))
    order = Array(b, broadcast.expand(b, wide.beside(n + 1), wide.shape))
    series = Array(b, _hurwitz(b, order.value, wide.value, "polygamma"))
    if n == 1:
        series = series.where(wide.compare("not_equal", math.inf), 0)
    factor = math.factorial(n) * (1 if n % 2 else -1)
    return (series * float(factor)).cast(x.dtype).value


_GAMMA_TERMS = 400
_TINY = 1e-300


@op("igamma", "igammac", "special_gammainc", "special_gammaincc")
def igamma(b: Builder, node: Node) -> Value:
    """The regularized lower or upper incomplete gamma function of (self, other): by its series
    (DLMF 8.7.1) where other is below self + 1, by Lentz's evaluation of the continued fraction
    (DLMF 8.9.2) above.
    """
    a, x = pair(b, node, floating=True)
    upper = node.kind in ("aten::igammac", "aten::special_gammaincc")
    result = by_loops(
        b,
        lambda p, q: _incomplete(p, q, upper),
        (a, x),
        "float64",
        work=_GAMMA_TERMS,
        name="igamma",
    )
    return ew.cast(b, result, a.dtype)


def _incomplete(a: Any, x: Any, upper: bool) -> Any:
    one, tiny = constant(1), constant(_TINY)
    term, total = loop_programs.cell("float64", one / a), loop_programs.cell("float64", one / a)
    divisor = x + one - a
    c, d = loop_programs.cell("float64", one / tiny), loop_programs.cell("float64", one / divisor)
    fraction = loop_programs.cell("float64", one / divisor)
    with loop_programs.serial(_GAMMA_TERMS) as k:
        n = k.astype("float64") + one
        term[0] = term[0] * x / (a + n)
        total[0] = total[0] + term[0]
        factor, step = n * (a - n), divisor + constant(2) * n
        d[0] = _nonzero(factor * d[0] + step)
        c[0] = _nonzero(step + factor / c[0])
        d[0] = one / d[0]
        fraction[0] = fraction[0] * c[0] * d[0]
    scale = tirx.exp(a * tirx.log(x) - x - lgamma(a))
    is_near = x < a + one
    low, high = scale * total[0], scale * fraction[0]
    value = _select(is_near, one - low, high) if upper else _select(is_near, low, one - high)
    zero = constant(0)
    at_start, at_end = (one, zero) if upper else (zero, one)
    value = _select(tirx.EQ(x, zero), at_start, value)
    value = _select(tirx.Or(tirx.EQ(a, zero), tirx.EQ(x, constant(math.inf))), at_end, value)
    endless = tirx.EQ(a, constant(math.inf))
    value = _select(endless, at_start, value)
    outside = tirx.Or(a < zero, x < zero)
    unknown = tirx.Or(tirx.isnan(x), tirx.And(tirx.isnan(a), tirx.Not(tirx.EQ(x, zero))))
    both = tirx.Or(
        tirx.And(tirx.EQ(a, zero), tirx.EQ(x, zero)),
        tirx.And(endless, tirx.EQ(x, constant(math.inf))),
    )
    return _select(tirx.Or(tirx.Or(outside, both), unknown), constant(math.nan), value)


def _nonzero(value: Any) -> Any:
    tiny = constant(_TINY)
    return _select(tirx.abs(value) < tiny, tiny, value)


_TAIL = 0.02425
_MIDDLE = (
    (-39.69683028665376, 220.9460984245205, -275.9285104469687, 138.3577518672690,
     -30.66479806614716, 2.506628277459239),
    (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972,
     -13.28068155288572, 1.0),
)  # fmt: skip
_ENDS = (
    (-0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734,
     4.374664141464968, 2.938163982698783),
    (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0),
)  # fmt: skip
"""Acklam's rational approximations of the normal distribution's quantiles: a relative error below
1.2e-9.
"""


def _normal_quantile(centred: Any, nearest_end: Any) -> Any:
    """The quantile of p, given p - 1/2 and the lesser of p and 1 - p."""
    square = centred * centred
    middle = centred * evaluate(square, _MIDDLE[0]) / evaluate(square, _MIDDLE[1])
    t = tirx.sqrt(constant(-2) * tirx.log(nearest_end))
    low = evaluate(t, _ENDS[0]) / evaluate(t, _ENDS[1])
    end = _select(centred < constant(0), low, -low)
    infinite = _select(centred < constant(0), constant(-math.inf), constant(math.inf))
    end = _select(tirx.EQ(nearest_end, constant(0)), infinite, end)
    return _select(nearest_end < constant(_TAIL), end, middle)


def _erfinv(x: Any) -> Any:
    half = constant(0.5)
    quantile = _normal_quantile(x * half, (constant(1) - tirx.abs(x)) * half)
    return _select(
        tirx.abs(x) > constant(1), constant(math.nan), quantile * constant(math.sqrt(0.5))
    )


def _ndtri(x: Any) -> Any:
    quantile = _normal_quantile(x - constant(0.5), tirx.min(x, constant(1) - x))
    outside = tirx.Or(x < constant(0), x > constant(1))
    return _select(outside, constant(math.nan), quantile)


_FROM_FRACTION, _SERIES, _FRACTION = 2.0, 40, 40


def _erfcx_of_positive(x: Any) -> Any:
    """exp(x * x) * erfc(x) from 0 on: by the series (DLMF 7.6.2) below 2, by the continued fraction
    (DLMF 7.9.2) above.
    """
    near = tirx.min(x, constant(_FROM_FRACTION))
    twice = near * near * constant(2)
    series = constant(1)
    for n in range(_SERIES, 0, -1):
        series = constant(1) + twice / constant(2 * n + 1) * series
    low = tirx.exp(near * near) - constant(2 / math.sqrt(math.pi)) * near * series
    far = tirx.max(x, constant(_FROM_FRACTION))
    fraction = far
    for n in range(_FRACTION, 0, -1):
        fraction = far + constant(n / 2) / fraction
    high = constant(1 / math.sqrt(math.pi)) / fraction
    return _select(x < constant(_FROM_FRACTION), low, high)


def _erfcx(x: Any) -> Any:
    positive = _erfcx_of_positive(tirx.abs(x))
    return _select(x < constant(0), constant(2) * tirx.exp(x * x) - positive, positive)


def _erfc(x: Any) -> Any:
    positive = _erfcx_of_positive(tirx.abs(x)) * tirx.exp(-x * x)
    return _select(x < constant(0), constant(2) - positive, positive)


_ROOT = math.sqrt(0.5)


def _ndtr(x: Any) -> Any:
    return constant(0.5) * _erfc(x * constant(-_ROOT))


def _log_ndtr(x: Any) -> Any:
    far = tirx.log(constant(0.5) * _erfcx(x * constant(-_ROOT))) - x * x * constant(0.5)
    tail = constant(0.5) * _erfc(x * constant(_ROOT))
    near = tirx.log(constant(1) - tail)
    # log(1 - t) is -t where 1 - t is 1.
    near = _select(tail < constant(1e-9), -tail, near)
    return _select(x < constant(-1), far, near)


def _entr(x: Any) -> Any:
    zero = constant(0)
    positive = -x * tirx.log(_select(x > zero, x, constant(1)))
    rest = _select(tirx.EQ(x, zero), zero, constant(-math.inf))
    return _select(tirx.isnan(x), x, _select(x > zero, positive, rest))


register_double("erfinv", _erfinv, "special_erfinv")
register_double("special_ndtri", _ndtri)
register_double("special_ndtr", _ndtr)
register_double("special_log_ndtr", _log_ndtr)
register_double("special_erfcx", _erfcx)
register_double("special_entr", _entr)


@op("special_xlog1py")
def xlog1py(b: Builder, node: Node) -> Value:
    """self * log(1 + other), 0 where self is."""

    def function(p: Any, q: Any) -> Any:
        one, zero = constant(1), constant(0)
        u = one + q
        flat = tirx.EQ(u, one)
        logarithm = _select(flat, q, tirx.log(u) * q / _select(flat, one, u - one))
        logarithm = _select(q > constant(1e30), tirx.log(q), logarithm)
        return _select(tirx.isnan(q), q, _select(tirx.EQ(p, zero), zero, p * logarithm))

    return in_double(b, function, *pair(b, node, floating=True), name="xlog1py")


_FROM_ASYMPTOTIC, _BESSEL_TERMS, _ASYMPTOTIC_TERMS = 20.0, 45, 14


def _bessel_scaled(x: Any, order: int) -> Any:
    """exp(-x) * I(order, x) from 0 on: the power series (DLMF 10.25.2) up to 20, the asymptotic
    expansion (DLMF 10.40.1) above.
    """
    near = tirx.min(x, constant(_FROM_ASYMPTOTIC))
    quarter = near * near * constant(0.25)
    series = constant(1)
    for k in range(_BESSEL_TERMS, 0, -1):
        series = constant(1) + quarter / constant(k * (k + order)) * series
    low = series * tirx.exp(-near) * (near * constant(0.5) if order else constant(1))
    far = tirx.max(x, constant(_FROM_ASYMPTOTIC))
    eighth = constant(0.125) / far
    expansion = constant(1)
    for k in range(_ASYMPTOTIC_TERMS, 0, -1):
        ratio = ((2 * k - 1) ** 2 - 4 * order * order) / k
        expansion = constant(1) + constant(ratio) * eighth * expansion
    high = expansion / tirx.sqrt(constant(2 * math.pi) * far)
    return _select(x < constant(_FROM_ASYMPTOTIC), low, high)


def _bessel(order: int, scaled: bool) -> Function:
    def function(x: Any) -> Any:
        size = tirx.abs(x)
        value = _bessel_scaled(size, order)
        value = value if scaled else value * tirx.exp(size)
        return _select(x < constant(0), -value, value) if order else value

    return function


register_double("i0", _bessel(0, False), "special_i0", "special_modified_bessel_i0")
register_double("special_i0e", _bessel(0, True))
register_double("special_i1", _bessel(1, False), "special_modified_bessel_i1")
register_double("special_i1e", _bessel(1, True))
