"""Bounds of integers hold for whatever variables are, and are close where they should be."""

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from compiler.passes.lower.loops.bounds import Bounds
from compiler.tir.building import alloc, let, let_opaque, serial, statements, store
from compiler.tir.exprs import as_int, const

COUNTS = {"i": (0, 5), "j": (-3, 4)}
"""First values and numbers of iterations of the loops."""

BINARY = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.Min,
    tirx.Max,
    tirx.Div,
    tirx.Mod,
    tirx.FloorDiv,
    tirx.FloorMod,
)


def loops(*params: Any) -> tuple[Bounds, dict[str, Any]]:
    """A function of the loops that COUNTS describes, and their variables."""
    variables = {name: tirx.Var(name, "int64") for name in COUNTS}
    body: Any = tirx.Evaluate(const(0))
    for name, (first, count) in COUNTS.items():
        kind = tirx.ForKind.SERIAL
        body = tirx.For(variables[name], const(first), const(count), kind, body)
    return Bounds(tirx.PrimFunc(list(params), body)), variables


BOUNDS, VARIABLES = loops()
LEAVES = st.one_of(
    st.sampled_from(list(VARIABLES.values())), st.integers(-9, 9).map(lambda value: const(value))
)


def combine(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.builds(lambda kind, a, b: kind(a, b), st.sampled_from(BINARY), parts, parts)
    choices = st.builds(
        lambda a, b, c, d: tirx.Select(tirx.LT(a, b), c, d), parts, parts, parts, parts
    )
    shifted = st.builds(lambda a, bits: tirx.RShift(a, const(bits)), parts, st.integers(0, 5))
    masked = st.builds(lambda a, bits: tirx.BitwiseAnd(a, const(bits)), parts, st.integers(-3, 31))
    return st.one_of(pairs, choices, shifted, masked)


def value(expr: Any, table: dict[Any, int]) -> int | None:
    """The value of an expression for some values of its variables; None if it divides by zero."""
    try:
        return evaluate(expr, table)
    except ZeroDivisionError:
        return None


def evaluate(expr: Any, table: dict[Any, int]) -> int:
    """The value of an expression; raises ZeroDivisionError."""
    if isinstance(expr, tvm.ir.Var):
        return table[expr]
    if (constant := as_int(expr)) is not None:
        return constant
    if isinstance(expr, tirx.Select):
        holds = evaluate(expr.condition.a, table) < evaluate(expr.condition.b, table)
        chosen = evaluate(expr.true_value, table), evaluate(expr.false_value, table)
        return chosen[0] if holds else chosen[1]
    return OPERATIONS[type(expr)](evaluate(expr.a, table), evaluate(expr.b, table))


def truncate(x: int, y: int) -> int:
    """The quotient, rounded to zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


OPERATIONS: dict[type, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Min: min,
    tirx.Max: max,
    tirx.Div: truncate,
    tirx.Mod: lambda x, y: x - y * truncate(x, y),
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.RShift: operator.rshift,
    tirx.BitwiseAnd: operator.and_,
}


@given(st.recursive(LEAVES, combine, max_leaves=12))
def test_no_value_is_out_of_bounds(expr: Any) -> None:
    least, greatest = BOUNDS.of(expr)
    for numbers in product(*(range(first, first + count) for first, count in COUNTS.values())):
        table = dict(zip(VARIABLES.values(), numbers, strict=True))
        result = value(expr, table)
        assert result is None or least <= result <= greatest


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (VARIABLES["i"], (0, 4)),
        (VARIABLES["j"] * 2 - VARIABLES["i"], (-10, 0)),
        (tirx.floordiv(VARIABLES["i"] + 7, const(3)), (2, 3)),
        (tirx.floormod(VARIABLES["j"], const(3)), (0, 2)),
        (tirx.truncmod(VARIABLES["j"], const(3)), (-2, 0)),
        # A condition may keep zero away.
        (tirx.FloorDiv(VARIABLES["i"], VARIABLES["i"] * 0), (0, 4)),
        (tirx.Ramp(VARIABLES["i"], const(3), 4), (0, 13)),
        (tirx.Cast("int32", VARIABLES["i"]), (0, 4)),
    ],
)
def test_bounds_of_loops_are_exact(expr: Any, expected: tuple[int, int]) -> None:
    assert BOUNDS.of(expr) == expected


def test_extents_of_parameters_are_sizes_and_numbers_may_be_negative() -> None:
    rows, number = tirx.Var("rows", "int64"), tirx.Var("number", "int64")
    bounds, _ = loops(tirx.decl_buffer([rows, number + rows], "float32", "x"), number)
    assert bounds.of(rows)[0] == 0
    assert bounds.of(number)[0] < 0


def test_cells_have_the_bounds_of_what_is_stored_unless_their_address_is_given_away() -> None:
    with statements() as body, serial(4, "i") as i:
        stored = let_opaque("kept", i + 2)
        lost = []
        for address in (lambda cell: cell.data, lambda cell: tirx.address_of(cell[const(0)])):
            cell = alloc([1], "int64", "given")
            store(cell, i, 0)
            let("status", tirx.Cast("int64", tirx.call_extern("int32", "change", address(cell))))
            lost.append(let("lost", cell[const(0)]))
        counter = alloc([1], "int64", "counter")
        store(counter, 0, 0)
        store(counter, counter[const(0)] - 1, 0)
    bounds = Bounds(tirx.PrimFunc([], body.stmt))
    assert bounds.of(stored) == (2, 5)
    assert all(bounds.of(value)[0] < 0 for value in lost)
    assert bounds.of(counter[const(0)])[0] < 0
