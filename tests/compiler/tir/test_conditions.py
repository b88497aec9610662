"""Where along an axis conditions hold, beside a test of every place."""

import pytest
from tvm import sym, tirx

from compiler.tir.conditions import conjuncts, limits_along, slack_of
from compiler.tir.exprs import Expr, as_int, const, substitute

X, Y = tirx.Var("x", "int64"), tirx.Var("y", "int64")
EXTENT = 12
CONDITIONS: dict[str, list[Expr]] = {
    "nothing": [],
    "padding": [const(3) <= X, const(10) > X],
    "steps": [X * 2 - 3 >= 0, const(20) > X * 3],
    "of a row": [X <= Y, X + 2 > Y],
    "never": [const(7) < X, const(4) > X],
    "all behind the end": [const(40) <= X],
    "all before the start": [const(-2) > X],
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("row", [-3, 0, 5, 11, 20])
def test_limits_enclose_the_positions_where_all_hold(name: str, row: int) -> None:
    conditions = CONDITIONS[name]
    limits = limits_along(conditions, X, const(EXTENT))
    assert limits is not None
    simplify = sym.Analyzer().simplify
    first, last = (as_int(simplify(substitute(end, {Y: const(row)}))) for end in limits)
    assert first is not None
    assert last is not None
    assert 0 <= first <= last <= EXTENT
    expected = [
        position
        for position in range(EXTENT)
        if all(
            as_int(simplify(substitute(one, {X: const(position), Y: const(row)})))
            for one in conditions
        )
    ]
    assert list(range(first, last)) == expected


def test_other_conditions_have_no_limits() -> None:
    for condition in (tirx.EQ(X, const(3)), const(9) > X * X, const(3) > X // 2, const(9) > X * Y):
        assert limits_along([condition], X, const(EXTENT)) is None
    assert slack_of(tirx.NE(X, Y)) is None


def test_conjuncts_of_a_nested_condition() -> None:
    low, high, row = const(3) <= X, const(10) > X, const(4) > Y
    assert [*conjuncts(tirx.all(low, high, row))] == [low, high, row]
    assert [*conjuncts(tirx.IntImm("bool", 1))] == []
