"""Loops decide at compile time what is known there, and cover every element once."""

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx

from compiler.tir.exprs import Expr, as_int, const
from compiler.tir.loops import Stmt, bind_opaque_all, blocks, parallel, serial, share_out, some_of

N = tirx.Var("n", "int64")


def evaluated(value: Expr) -> Stmt:
    return tirx.Evaluate(value)


def same(one: Stmt, other: Stmt) -> bool:
    return bool(tvm_ffi.structural_equal(one, other, map_free_vars=True))


def test_work_is_shared_out_where_it_is_worth_it() -> None:
    assert same(share_out(N, True, evaluated), parallel(N, evaluated))
    assert same(share_out(N, const(7) >= const(8), evaluated), serial(N, evaluated))
    assert same(share_out(1, const(8) <= N, evaluated), evaluated(const(0)))
    open_ = share_out(N, const(8) <= N, evaluated)
    assert same(open_.then_case, parallel(N, evaluated))
    assert same(open_.else_case, serial(N, evaluated))


@pytest.mark.parametrize(
    ("extent", "lanes", "widths"),
    [(13, 4, [4, 1]), (15, 4, [4, 2, 1]), (8, 8, [8]), (3, 8, [2, 1]), (5, 1, [1])],
)
def test_blocks_of_a_known_extent_halve(extent: int, lanes: int, widths: list[int]) -> None:
    used: list[int] = []

    def body(start: Expr, width: int) -> Stmt:
        used.append(width)
        return evaluated(start)

    blocks(const(extent), lanes, body)
    assert used == widths


def test_what_is_left_of_a_total() -> None:
    assert as_int(some_of(12, 4, N)) == 4
    assert [as_int(some_of(10, 4, const(start))) for start in (0, 4, 8)] == [4, 4, 2]


def test_only_open_values_are_named() -> None:
    given: list[Any] = []

    def body(values: list[Expr]) -> Stmt:
        given.extend(values)
        return evaluated(const(0))

    bind_opaque_all("extent", [const(3), N, N + const(1)], body)
    assert as_int(given[0]) == 3
    assert given[1].same_as(N)
    assert isinstance(given[2], tvm.ir.Var)
    assert given[2].name == "extent"
