"""Counts that depend on dims: arithmetic, comparison, and text that axis expressions read."""

from typing import Any

import pytest
from tvm import tirx

from compiler.tir.polynomials import (
    Polynomial,
    UnknownExtent,
    least,
    multiply_all,
    polynomial_of,
    total,
)
from relaxd.contract.dims.axes import Axis

N, M = (tirx.Var(name, "int64") for name in "nm")
VALUES = {N: Polynomial.atom("n"), M: Polynomial.atom("m")}
SIZES = [{"n": n, "m": m} for n in (1, 2, 7, 64) for m in (1, 5, 13)]


def read(extent: Any) -> Polynomial:
    return polynomial_of(extent, VALUES)


@pytest.mark.parametrize(
    ("extent", "value"),
    [
        (N * M + 3 * N - M * N, lambda n, m: 3 * n),
        ((N + 3) // 4 * 4, lambda n, m: (n + 3) // 4 * 4),
        (tirx.floormod(N + M, 5), lambda n, m: (n + m) % 5),
        (tirx.max(N, M) * tirx.min(N, 3), lambda n, m: max(n, m) * min(n, 3)),
        (tirx.truncdiv(N * 6, tirx.IntImm("int64", 3)), lambda n, m: 2 * n),
        ((N - 1) * (N + 1), lambda n, m: n * n - 1),
    ],
)
def test_texts_have_the_value_of_the_extent(extent: Any, value: Any) -> None:
    text = str(read(extent))
    for sizes in SIZES:
        assert Axis(text).evaluate(sizes) == value(**sizes), text


def test_polynomials_are_in_one_form() -> None:
    n, m = VALUES.values()
    assert str(total([n * m, m * n * 2, Polynomial.constant(4)])) == "3*m*n + 4"
    assert str(multiply_all([n, n, Polynomial.constant(8)])) == "8*n*n"
    assert str(total([])) == "0"


def test_quotients_of_numbers_are_numbers() -> None:
    seven = {N: Polynomial.constant(7)}
    assert polynomial_of((N + 3) // 4, seven).value == 2
    assert polynomial_of(tirx.floormod(N, 4), seven).value == 3


def test_an_extent_of_no_dim_is_unknown() -> None:
    with pytest.raises(UnknownExtent, match="k"):
        read(tirx.Var("k", "int64") + N)


@pytest.mark.parametrize(
    ("lhs", "rhs", "smaller"),
    [
        (N * 4, N * M * 4, "4*n"),
        (N * M, N * 2, "min(m*n, 2*n)"),
        (N * 5 + M, N * 6 + M, "5*n + m"),
        (tirx.IntImm("int64", 100), N, "min(100, n)"),
    ],
)
def test_the_smaller_is_taken_where_it_is_clear(lhs: Any, rhs: Any, smaller: str) -> None:
    smallest = least(read(lhs), read(rhs))
    wanted = [min(int(Axis(str(read(e))).evaluate(s)) for e in (lhs, rhs)) for s in SIZES]
    assert [Axis(str(smallest)).evaluate(sizes) for sizes in SIZES] == wanted
    assert sorted(str(smallest)) == sorted(smaller)
