"""Softmax of one row of scores in scratch memory, but for the division.

Two sweeps over the row: the first applies scale and mask and finds the greatest score, the second
replaces scores by powers and sums them. The row stays in L1. Each lane of a vector combines its own
columns. Those that fill no vector are changed singly, since a mask may end with the row; their
powers are computed as one vector.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, let, serial, store, vectorized
from compiler.tir.exprs import Expr, Table, const, load


def softmax_row(
    attention: Attention,
    unit: VectorUnit,
    place: Table,
    scores: Any,
    begin: Expr,
    totals: Any,
    i: Expr,
    greatest_of: Any = None,
) -> None:
    """Replace the scores from scores[begin] on by exp(score - greatest), whose sum is totals[i].
    What fills the last vector, for which there is room, becomes zeros.

    The division by that sum is left to the few results of the row. greatest_of: where the columns
    are a part of a row, greatest_of[i] becomes their greatest score.
    """
    column, n = attention.column.var, attention.column.extent
    greatest = alloc([1], "float32", "greatest")
    # A mask that is chosen by the column has no vector form; the powers always have one.
    lanes = unit.lanes(32) if vectorizable(attention.changed, column) else 1
    acc = _accumulators(lanes + 1, float("-inf"))
    for j, slot in columns(n, lanes):
        changed = attention.scored(load(scores, [begin + j]), {**place, column: j})
        store(scores, changed, begin + j)
        store(acc, tirx.max(load(acc, [slot]), load(scores, [begin + j])), slot)
    # exp of a score less the greatest one cannot overflow.
    store(greatest, pairwise(acc, lanes + 1, tirx.max), 0)
    if greatest_of is not None:
        store(greatest_of, load(greatest, [0]), i)
        # Of a part that a mask hides whole, powers must be zeros: others may not be hidden.
        hidden = load(greatest, [0]) == tirx.const(float("-inf"), "float32")
        store(greatest, tirx.Select(hidden, tirx.const(0, "float32"), load(greatest, [0])), 0)
    store(totals, _sum_of_powers(unit, scores, begin, n, load(greatest, [0])), i)


def _sum_of_powers(unit: VectorUnit, scores: Any, begin: Expr, n: Expr, greatest: Expr) -> Expr:
    """Emits the second sweep."""
    lanes = unit.lanes(32)
    whole = let("whole", tirx.ceildiv(n, lanes))
    with serial(whole * lanes - n, "filling") as rest:
        store(scores, float("-inf"), begin + n + rest)
    acc = _accumulators(lanes, 0.0)
    with serial(whole, "strip") as strip, vectorized(lanes) as lane:
        place = begin + strip * lanes + lane
        store(scores, tirx.exp(load(scores, [place]) - greatest), place)
        store(acc, load(acc, [lane]) + load(scores, [place]), lane)
    return pairwise(acc, lanes, operator.add)


def _accumulators(count: int, start: float) -> Any:
    acc = alloc([count], "float32", "acc")
    for slot in range(count):
        store(acc, start, slot)
    return acc


def columns(n: Expr, lanes: int) -> Iterator[tuple[Expr, Expr]]:
    """(column, accumulator) of every column below n, in vectors and the rest singly, which have an
    accumulator of their own.
    """
    full = n // lanes
    with serial(full, "strip") as strip:
        with vectorized(lanes) as lane:
            yield strip * lanes + lane, lane
    # Singly, because scores that only fill the last panel of keys must not count.
    with serial(n - full * lanes, "column") as rest:
        yield full * lanes + rest, const(lanes)


def pairwise(acc: Any, count: int, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """The first `count` elements of `acc` combined in a tree, so that few of the operations wait
    for each other.
    """
    values = [load(acc, [slot]) for slot in range(count)]
    while len(values) > 1:
        pairs = [combine(*values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = [*pairs, *values[len(pairs) * 2 :]]
    return values[0]
