"""exp, tanh, erf and sigmoid of float32 as polynomials, so that they run in vectors; within 2e-7
relative or so of the exact value.
"""

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, calls_any, dtype_of, let_in, nodes, op_name, rewrite


def _f(value: float) -> Expr:
    return tirx.const(value, "float32")


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    result: Expr = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _f(coefficient)
    return result


def exp(x: Expr) -> Expr:
    """e^x as Cephes computes it: x = n ln 2 + r, a polynomial in r, n put into the exponent. Below
    -87 gives 0, NaN stays NaN.
    """
    # 2^128 and more, from 88.73 on, is infinite.
    return exp_below_89(tirx.min(_f(89.0), x))


def exp_below_89(x: Expr) -> Expr:
    """e^x of numbers up to 89, as `exp` computes it."""
    # A comparison with NaN is false: a bound is replaced by it, here and elsewhere.
    return let_in("x", tirx.max(_f(-87.33), x), lambda x: _power(x, 1))


def _power(x: Expr, sign: int) -> Expr:
    """e^x, or of sign -1 e^-x, of a variable whose power is between e^-87.33 and e^89.

    Added to 1.5 * 2^23 a number is rounded to an integer, which then is the sum's lowest bits;
    added to 126 more, the exponent of 2^(n-1). That has room where 2^n has not, and at the lower
    end it becomes 0; so the polynomial is of twice the power. Of those that begin with 1 + r, its
    greatest error in units of the last place is the least, 0.04.
    """
    log2e, high, low, shift = 1.44269504088896341, 0.693359375, -2.12194440e-4, 1.5 * 2.0**23
    coefficients = (
        1.3788696378e-3,
        8.3686849102e-3,
        4.1668899357e-2,
        1.6666521132e-1,
        4.9999991059e-1,
        1.0,
        1.0,
    )

    def rest(shifted: Expr, n: Expr) -> Expr:
        exponent = tirx.reinterpret("int32", shifted) << tirx.const(23, "int32")
        # For e^-x this is -r, and so are its odd powers: a negation less.
        twice = let_in(
            "r",
            x - n * _f(sign * high) - n * _f(sign * low),
            lambda r: _horner(
                r,
                [
                    2 * coefficient * sign**degree
                    for degree, coefficient in zip(range(6, -1, -1), coefficients, strict=True)
                ],
            ),
        )
        return twice * tirx.reinterpret("float32", exponent)

    return let_in(
        "rounded",
        x * _f(sign * log2e) + _f(shift + 126),
        lambda shifted: let_in("n", shifted - _f(shift + 126), lambda n: rest(shifted, n)),
    )


def exp_up_to_0(x: Expr) -> Expr:
    """e^x of numbers up to 0, in two multiply-adds less than `exp`, within 4e-7 relative down to
    -5 and 4e-6 below. Below -87.7 gives 0, NaN stays NaN, and e^0 is 1.

    2^n times a polynomial in r = x log2 e - n, between -1/2 and 1/2. Of those of degree 5 that
    begin with 1, its greatest relative error to 2^r is the least, 9.2e-8 (Lawson's algorithm over
    3001 Chebyshev nodes). n + 127 is an exponent, which at -127 makes the product 0.
    """
    log2e, shift = 1.44269504088896341, 1.5 * 2.0**23 + 127
    coefficients = (
        1.3264727258e-3,
        9.6715126930e-3,
        5.5507337356e-2,
        2.4022242084e-1,
        6.9314697760e-1,
        1.0,
    )

    def power(x: Expr, shifted: Expr) -> Expr:
        exponent = tirx.reinterpret("int32", shifted) << tirx.const(23, "int32")
        rest = x * _f(log2e) - (shifted - _f(shift))
        polynomial = let_in("r", rest, lambda r: _horner(r, coefficients))
        return polynomial * tirx.reinterpret("float32", exponent)

    return let_in(
        "x",
        tirx.max(_f(-88.0), x),
        lambda x: let_in("rounded", x * _f(log2e) + _f(shift), lambda n: power(x, n)),
    )


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
        inside = let_in("s", x * x, lambda s: x * _horner(s, odd) / _horner(s, even))
        return prim.Select(x > _f(limit), _f(1.0), prim.Select(x < _f(-limit), _f(-1.0), inside))

    return let_in("x", x, body)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x)."""
    return _f(1.0) / _one_and_power(x)


def _one_and_power(x: Expr) -> Expr:
    """1 + e^-x, infinite where the sigmoid of x is 0."""
    bounded = tirx.min(_f(87.33), tirx.max(_f(-89.0), x))
    return _f(1.0) + let_in("x", bounded, lambda x: _power(x, -1))


def _gated(value: Expr) -> tuple[Expr, Expr] | None:
    """(y, x) if a product is y times the sigmoid of x, and y is or occurs in x, as in swish.

    Otherwise y may vary faster than the sigmoid, which then is better computed once.
    """
    for y, call in ((value.a, value.b), (value.b, value.a)):
        if op_name(call) == "tirx.sigmoid" and any(
            tvm_ffi.structural_equal(y, node) for node in nodes(call.args[0])
        ):
            return y, call.args[0]
    return None


_FUNCTIONS = {"tirx.exp": exp, "tirx.tanh": tanh, "tirx.erf": erf, "tirx.sigmoid": sigmoid}


def vectorize_calls(expr: Expr) -> Expr:
    """`expr` with calls of these functions on float32 replaced.

    y times the sigmoid of x is y / (1 + e^-x), where that is no more to compute: a multiplication
    less, and the same infinities and NaN, as of -inf times the sigmoid 0.
    """

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, prim.Mul) and dtype_of(node) == "float32" and (pair := _gated(node)):
            y, x = (rewrite(part, visit) for part in pair)
            return y / _one_and_power(x)
        if (
            isinstance(node, tvm.ir.Call)
            and dtype_of(node) == "float32"
            and getattr(node.op, "name", "") in _FUNCTIONS
        ):
            return _FUNCTIONS[node.op.name](rewrite(node.args[0], visit))
        return None

    # Every store of a kernel comes here; most call nothing, or fma alone.
    return rewrite(expr, visit) if calls_any(expr, _FUNCTIONS) else expr
