"""Counts that are known at compile time are computed there."""

from tvm import tirx

from compiler.tir.exprs import as_int, const
from compiler.tir.loops import some_of


def test_what_is_left_of_a_total() -> None:
    assert as_int(some_of(12, 4, tirx.Var("n", "int64"))) == 4
    assert [as_int(some_of(10, 4, const(start))) for start in (0, 4, 8)] == [4, 4, 2]
