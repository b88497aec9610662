"""Arithmetic on extents agrees with Python's, with an int or an expression on either side."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from compiler.ir.shapes import extents as ex
from compiler.tir.exprs import substitute

NUMBERS = st.integers(-50, 50)
NONZERO = NUMBERS.filter(bool)


def truncate(a: int, b: int) -> int:
    return int(a / b)


PYTHON: dict[str, Callable[[int, int], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": truncate,
    "truncmod": lambda a, b: a - b * truncate(a, b),
    "minimum": min,
    "maximum": max,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "ceildiv": lambda a, b: -(-a // b),
}


def evaluate(expression: Any, values: dict[tirx.Var, int]) -> Any:
    """The expression where its variables have these values."""
    bound = {var: tirx.IntImm("int64", value) for var, value in values.items()}
    return ex.plain(tvm.sym.Analyzer().simplify(substitute(expression, bound)))


@pytest.mark.parametrize("name", PYTHON)
@given(a=NUMBERS, b=NONZERO)
def test_the_same_answer_for_ints_and_expressions(name: str, a: int, b: int) -> None:
    if name == "ceildiv":
        b = abs(b)
    function, expected = getattr(ex, name), PYTHON[name](a, b)
    assert function(a, b) == expected
    x, y = tirx.Var("x", "int64"), tirx.Var("y", "int64")
    assert evaluate(function(x, y), {x: a, y: b}) == expected
    assert evaluate(function(x, b), {x: a}) == expected
    assert evaluate(function(a, y), {y: b}) == expected


def test_an_expression_of_constants_is_a_python_number() -> None:
    three = tirx.IntImm("int64", 3)
    assert ex.add(three, tirx.IntImm("int64", 4)) == 7
    assert isinstance(ex.add(three, 4), int)
    assert ex.plain(tirx.IntImm("bool", 1)) is True
    assert ex.plain(tirx.FloatImm("float32", 0.5)) == 0.5


@pytest.mark.parametrize(
    ("condition", "chosen"), [(True, 3), (False, 4), (tirx.IntImm("bool", 0), 4)]
)
def test_a_known_condition_selects_at_once(condition: Any, chosen: int) -> None:
    assert ex.select(condition, 3, 4) == chosen


def test_a_selection_has_the_dtype_of_its_expression() -> None:
    x = tirx.Var("x", "int64")
    assert ex.select(ex.less(x, 3), 1, 2.5).ty.dtype == "float64"
    assert ex.select(ex.less(x, 3), tirx.Var("h", "float32"), 2).ty.dtype == "float32"
    assert evaluate(ex.select(ex.less(x, 3), 1, 2), {x: 2}) == 1
    assert evaluate(ex.select(ex.negate(ex.less(x, 3)), 1, 2), {x: 2}) == 2


def test_prod_and_total_of_nothing() -> None:
    assert (ex.prod([]), ex.total([])) == (1, 0)
    x = tirx.Var("x", "int64")
    assert evaluate(ex.prod([2, x, 3]), {x: 5}) == 30
    assert evaluate(ex.total([2, x, 3]), {x: 5}) == 10


def test_extents_are_spelled_without_the_types_of_tvm() -> None:
    seq = tirx.Var("seq", "int64")
    extent = tirx.min((seq + 1) * 4 // 2, tirx.const(512, "int64")) - 3
    assert "T." in str(extent)
    assert ex.spell(extent) == "min((seq + 1) * 4 // 2, 512) - 3"
    assert [ex.spell(value) for value in (7, seq, tirx.const(7, "int64"))] == ["7", "seq", "7"]
