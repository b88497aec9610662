"""Softmax of rows of scores in scratch memory, without the division by the sum.

Two sweeps over the rows: the first applies scale and mask and finds each row's greatest score, the
second replaces scores by powers and adds them up. The rows stay in L1. Each lane of a vector
combines its own columns. Columns that fill no vector are changed one by one, since a mask may end
with the row; their powers are computed as one vector.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, let, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, const, load
from compiler.tir.vecmath import exp_below_89


@dataclass(frozen=True)
class Row:
    """The scores of a query by all columns, in vectors that begin `step` elements apart.

    position: of the query; begin: where its scores are in their buffer; index: of its element in
    `totals`.
    """

    position: Table
    begin: Expr
    step: int
    index: Expr


def softmax_rows(
    attention: Attention,
    unit: VectorUnit,
    rows: Sequence[Row],
    scores: Any,
    totals: Any,
    greatest_of: Any = None,
) -> None:
    """Emit exp(score - greatest) in place of each row's scores, and their sum as totals[index]. The
    rest of the last vector, for which there is room, becomes zeros.

    Rows are interleaved to hide latencies. The division by the sum is left to the few results of a
    row. greatest_of: where the columns are a part of a row, greatest_of[index] becomes their
    greatest score. In a safe attention, rows whose sum is NaN become zeros with a sum of 1, except
    in parts, where the sum of all parts decides.
    """
    column, n, lanes = attention.column.var, attention.column.extent, unit.lanes(32)
    # A mask that is chosen by the column has no vector form; the powers always have one.
    in_vectors = is_vectorizable(attention.changed, column)
    accs = [accumulators(lanes + 1, float("-inf")) for _ in rows]
    for strip, lane, slot in columns(n, lanes, in_vectors):
        for row, acc in zip(rows, accs, strict=True):
            index = row.begin + strip * row.step + lane
            position = {**row.position, column: strip * lanes + lane}
            store(scores, attention.change_score(load(scores, [index]), position), index)
            store(acc, tirx.max(load(acc, [slot]), load(scores, [index])), slot)
    greatest = alloc([len(rows)], "float32", "greatest")
    for i, (row, acc) in enumerate(zip(rows, accs, strict=True)):
        # exp of a score less the greatest one cannot overflow.
        store(greatest, greatest_lane(acc, lanes), i)
        if greatest_of is not None:
            store(greatest_of, load(greatest, [i]), row.index)
            # If the mask hides all of a part, its powers must be zeros, not NaN: others may be
            # visible.
            hidden = load(greatest, [i]) == tirx.const(float("-inf"), "float32")
            shown = tirx.Select(hidden, tirx.const(0, "float32"), load(greatest, [i]))
            store(greatest, shown, i)
    _emit_powers(unit, rows, scores, n, greatest, totals)
    if attention.safe and greatest_of is None:
        for row in rows:
            _emit_safe(unit, row, scores, n, totals)


def is_undefined(total: Expr) -> Expr:
    """The condition that the softmax of a row is NaN, or has no columns. total: the sum of its
    powers, the greatest of which is 1.
    """
    return tirx.Or(tirx.isnan(total), total == tirx.const(0, "float32"))


def _emit_safe(unit: VectorUnit, row: Row, scores: Any, n: Expr, totals: Any) -> None:
    """Emit zeros in place of weights that are NaN. Values are multiplied by them all the same,
    since 0 * NaN and 0 * inf are NaN.
    """
    lanes = unit.lanes(32)
    with when(is_undefined(load(totals, [row.index]))):
        with serial(tirx.ceildiv(n, lanes), "strip") as strip, vectorize(lanes) as lane:
            store(scores, 0, row.begin + strip * row.step + lane)
        store(totals, 1, row.index)


def _emit_powers(
    unit: VectorUnit, rows: Sequence[Row], scores: Any, n: Expr, greatest: Any, totals: Any
) -> None:
    """Emit the second sweep."""
    lanes = unit.lanes(32)
    vectors = let("whole", tirx.ceildiv(n, lanes))
    with serial(vectors * lanes - n, "filling") as rest:
        for row in rows:
            last = row.begin + (vectors - 1) * row.step
            store(scores, float("-inf"), last + (lanes - 1 - rest))
    accs = [accumulators(lanes, 0.0) for _ in rows]
    with serial(vectors, "strip") as strip:
        for i, (row, acc) in enumerate(zip(rows, accs, strict=True)):
            with vectorize(lanes) as lane:
                index = row.begin + strip * row.step + lane
                store(scores, exp_below_89(load(scores, [index]) - load(greatest, [i])), index)
                store(acc, load(acc, [lane]) + load(scores, [index]), lane)
    for row, acc in zip(rows, accs, strict=True):
        store(totals, pairwise(acc, lanes, operator.add), row.index)


def accumulators(count: int, start: float) -> Any:
    """Emit a new buffer of `count` elements, all `start`."""
    acc = alloc([count], "float32", "acc")
    for slot in range(count):
        store(acc, start, slot)
    return acc


def greatest_lane(acc: Any, lanes: int) -> Expr:
    """Emit the maximum of the lanes and of the element behind them."""
    return tirx.max(reduce_buffer(acc, lanes, tirx.max), load(acc, [lanes]))


def reduce_buffer(acc: Any, lanes: int, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Emit the reduction of the lanes into the first one, half of them at a time; return it."""
    half = lanes // 2
    while half:
        with vectorize(half) as lane:
            store(acc, combine(load(acc, [lane]), load(acc, [lane + half])), lane)
        half //= 2
    return load(acc, [0])


def columns(
    n: Expr, lanes: int, in_vectors: bool = True, first: Expr | None = None
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(vector, lane, accumulator) of every column below n from the vector `first` on: in vectors of
    `lanes`, then the rest one by one with an accumulator of its own; all one by one unless
    `in_vectors`.
    """
    full, start = n // lanes, const(0) if first is None else first
    with serial(full - start, "strip") as strip:
        if in_vectors:
            with vectorize(lanes) as lane:
                yield start + strip, lane, lane
        else:
            with serial(lanes, "lane") as lane:
                yield start + strip, lane, lane
    # One by one, because padding of the last panel of keys must not count.
    with serial(n - full * lanes, "column") as rest:
        yield full, rest, const(lanes)


def pairwise(acc: Any, count: int, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Combine the first `count` elements of `acc` in a tree: a short chain of dependent
    operations.
    """
    values = [load(acc, [slot]) for slot in range(count)]
    while len(values) > 1:
        pairs = [combine(*values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = [*pairs, *values[len(pairs) * 2 :]]
    return values[0]
