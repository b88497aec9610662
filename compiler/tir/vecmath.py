"""exp, tanh, erf and sigmoid of float32 as polynomials, so that they run in vectors; within 2e-7
relative or so of the exact value.
"""

from collections.abc import Callable, Sequence

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, calls_any, dtype_of, rewrite


def _f(value: float) -> Expr:
    return tirx.const(value, "float32")


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    result: Expr = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _f(coefficient)
    return result


def _with(name: str, value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    var = tirx.Var(name, dtype_of(value))
    return prim.Let(var, value, body(var))


def exp(x: Expr) -> Expr:
    """e^x after Cephes' expf: x = n ln 2 + r, a polynomial in r, n put into the exponent. Below -87
    gives 0, NaN stays NaN.
    """
    # 2^128 and more, from 88.73 on, is infinite.
    return exp_below_89(tirx.min(_f(89.0), x))


def exp_below_89(x: Expr) -> Expr:
    """e^x of numbers up to 89, as `exp` computes it.

    Added to 1.5 * 2^23 a number is rounded to an integer, which then is the sum's lowest bits;
    added to 126 more, the exponent of 2^(n-1). That has room where 2^n has not, and at the lower
    end it becomes 0; so the polynomial is of twice the power.
    """
    log2e, high, low, rounding = 1.44269504088896341, 0.693359375, -2.12194440e-4, 1.5 * 2.0**23
    coefficients = (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
        1.0,
        1.0,
    )

    def body(x: Expr) -> Expr:
        return _with(
            "rounded",
            x * _f(log2e) + _f(rounding + 126),
            lambda rounded: _with("n", rounded - _f(rounding + 126), lambda n: rest(x, rounded, n)),
        )

    def rest(x: Expr, rounded: Expr, n: Expr) -> Expr:
        exponent = tirx.reinterpret("int32", rounded) << tirx.const(23, "int32")
        twice = _with(
            "r",
            x - n * _f(high) - n * _f(low),
            lambda r: _horner(r, [2 * coefficient for coefficient in coefficients]),
        )
        return twice * tirx.reinterpret("float32", exponent)

    # A comparison with NaN is false: either bound gives way to it.
    return _with("x", tirx.max(_f(-87.33), x), body)


def tanh(x: Expr) -> Expr:
    """Tanh as the rational function of degree 13 over 6 that Eigen uses, 1 beyond where it rounds
    to 1.
    """
    odd = (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    )
    even = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
    return _rational(x, 7.90531110763549805, odd, even)


def erf(x: Expr) -> Expr:
    """The error function as the rational function of degree 13 over 8 that Eigen uses, 1 beyond
    where it rounds to 1.
    """
    odd = (
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    )
    even = (
        -1.45660718464996e-05,
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    )
    if (
        isinstance(x, prim.Div)
        and isinstance(x.b, prim.FloatImm)
        and 2.0**-120 < abs(x.b.value) < 2.0**120
    ):
        # As graphs write GELU. A product may differ by a rounding from the quotient, and erf is
        # changed by no more than its argument.
        x = x.a * _f(1.0 / x.b.value)
    return _rational(x, 3.832506856900711, odd, even)


def _rational(x: Expr, limit: float, odd: Sequence[float], even: Sequence[float]) -> Expr:
    def body(x: Expr) -> Expr:
        inside = _with("s", x * x, lambda s: x * _horner(s, odd) / _horner(s, even))
        return prim.Select(x > _f(limit), _f(1.0), prim.Select(x < _f(-limit), _f(-1.0), inside))

    return _with("x", x, body)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x)."""
    return _f(1.0) / (_f(1.0) + exp(_f(0.0) - x))


_FUNCTIONS = {"tirx.exp": exp, "tirx.tanh": tanh, "tirx.erf": erf, "tirx.sigmoid": sigmoid}


def vectorize_calls(expr: Expr) -> Expr:
    """`expr` with calls of these functions on float32 replaced."""

    def visit(node: Expr) -> Expr | None:
        if (
            isinstance(node, tvm.ir.Call)
            and dtype_of(node) == "float32"
            and getattr(node.op, "name", "") in _FUNCTIONS
        ):
            return _FUNCTIONS[node.op.name](rewrite(node.args[0], visit))
        return None

    # Every store of a kernel comes here; most call nothing, or fma alone.
    return rewrite(expr, visit) if calls_any(expr, _FUNCTIONS) else expr
