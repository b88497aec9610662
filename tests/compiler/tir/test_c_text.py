"""Extents as C text."""

from itertools import product

import pytest
from tvm import tirx

from compiler.errors import CodegenError
from compiler.ir.shapes.facts import UNBOUNDED
from compiler.tir import ranges
from compiler.tir.c_text import (
    axis_expression,
    expression,
    quote,
)
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim

n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
NAMES = {n: "n", m: "m"}


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (n * 2 + 1, "((n * 2) + 1)"),
        (tirx.floordiv(n + 5, 6), "rd_floordiv((n + 5), 6)"),
        (tirx.floormod(n, m), "rd_floormod(n, m)"),
        (tirx.max(n, m), "rd_max(n, m)"),
        (tirx.if_then_else(n > m, n, tirx.IntImm("int64", 0)), "((n > m) ? n : 0)"),
        (n << 1, "(n << 1)"),
        (tirx.IntImm("int64", 1 << 40), "INT64_C(1099511627776)"),
        (tirx.IntImm("int64", -(1 << 63)), "INT64_MIN"),
    ],
)
def test_extents(extent, text):
    assert expression(extent, NAMES) == text


BYTE, ANY = (0, 255), ranges.ANY


@pytest.mark.parametrize(
    ("extent", "ranges_by_name", "text"),
    [
        (n * 2 + 1, {n: BYTE}, "((n * 2) + 1)"),
        (n * 2 + 1, {n: (0, 1 << 62)}, "RD_ADD(RD_MUL(n, 2), 1)"),
        (n * m, {n: (0, 1 << 31), m: (0, 1 << 31)}, "(n * m)"),
        (n * m, {n: (0, 1 << 32), m: (0, 1 << 31)}, "RD_MUL(n, m)"),
        (n - m, {n: BYTE, m: (-(1 << 63), 0)}, "RD_SUB(n, m)"),
        (n - m, {n: ANY, m: (0, 0)}, "(n - m)"),
        (tirx.min(n, 7) * m, {n: (0, 1 << 50), m: (0, 1 << 50)}, "(rd_min(n, 7) * m)"),
        (tirx.truncdiv(n, 3) + m, {n: ANY, m: BYTE}, "(rd_truncdiv(n, 3) + m)"),
        (tirx.floormod(n, 5) * m, {n: ANY, m: (0, 1 << 60)}, "(rd_floormod(n, 5) * m)"),
        (tirx.if_then_else(n > m, n, m) + 1, {n: BYTE}, "RD_ADD(((n > m) ? n : m), 1)"),
    ],
)
def test_what_may_need_more_than_64_bits_is_checked(extent, ranges_by_name, text):
    assert expression(extent, NAMES, ranges_by_name) == text


@pytest.mark.parametrize("kind", [tirx.truncdiv, tirx.floordiv, tirx.truncmod, tirx.floormod])
def test_ranges_hold_every_quotient_and_remainder(kind):
    forms = {
        tirx.truncdiv: lambda p, q: int(p / q),
        tirx.floordiv: lambda p, q: p // q,
        tirx.truncmod: lambda p, q: p - q * int(p / q),
        tirx.floormod: lambda p, q: p % q,
    }
    numbers = range(-5, 6)
    for low, high, least, greatest in product(numbers, repeat=4):
        if low > high or least > greatest:
            continue
        lowest, highest = ranges.range_of(kind(n, m), {n: (low, high), m: (least, greatest)})
        for p, q in product(range(low, high + 1), range(least, greatest + 1)):
            assert q == 0 or lowest <= forms[kind](p, q) <= highest


def test_ranges_of_axes():
    ranges_by_name = {"n": (1, 9), "m": (0, 4)}
    assert ranges.of_axis(Axis("2*n + m").tree, ranges_by_name) == (2, 22)
    assert ranges.of_axis(Axis("min(n, m, 3) // 2").tree, ranges_by_name) == (0, 1)
    assert ranges.of_dim(Dim("n")) == (1, ranges.MOST_EXTENT)
    assert ranges.MOST_EXTENT == UNBOUNDED


def test_what_has_no_form_is_refused():
    with pytest.raises(CodegenError, match="no C form"):
        expression(tirx.exp(tirx.Var("x", "float32")), NAMES)


def test_axes_of_inputs():
    names = {"n": "a", "m": "b"}
    assert axis_expression(Axis("2*n + min(n, m, 3)"), names) == (
        "RD_ADD(RD_MUL(2, a), rd_min(rd_min(a, b), 3))"
    )
    assert axis_expression(Axis("n // 2 % 3"), names) == "rd_floormod(rd_floordiv(a, 2), 3)"


def test_texts_of_a_model_cannot_leave_their_literal():
    assert quote('a"b\\c\n??/é') == '"a\\"b\\\\c\\n\\?\\?/\\303\\251"'
