"""Extents as C text."""

import pytest
from tvm import tirx

from compiler.codegen.standalone.expressions import axis_expression, expression, quoted
from compiler.errors import CodegenError
from relaxd.contract.axes import Axis

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


def test_what_has_no_form_is_refused():
    with pytest.raises(CodegenError, match="no C form"):
        expression(tirx.exp(tirx.Var("x", "float32")), NAMES)


def test_axes_of_inputs():
    names = {"n": "a", "m": "b"}
    assert axis_expression(Axis("2*n + min(n, m, 3)"), names) == (
        "((2 * a) + rd_min(rd_min(a, b), 3))"
    )
    assert axis_expression(Axis("n // 2 % 3"), names) == "rd_floormod(rd_floordiv(a, 2), 3)"


def test_texts_of_a_model_cannot_leave_their_literal():
    assert quoted('a"b\\c\n??/é') == '"a\\"b\\\\c\\n\\?\\?/\\303\\251"'
