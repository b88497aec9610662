"""Softmax of rows of scores whose results are rounded to bfloat16.

Rows are those of `paired`: the scores of a block of queries, vector by vector of keys, so that
[vector, row, lane] is one buffer. Scale and mask are applied, and each row's greatest scores found,
where a tile of scores leaves its registers. One sweep then computes the powers and adds them up, a
second one divides by the sum and rounds. Columns that fill no panel are changed in a sweep of their
own, singly where they fill no vector, since a mask may end with the row; so are all columns of a
mask that has no vector form.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.softmax import (
    accumulators,
    columns,
    greatest_lane,
    halved,
    is_undefined,
)
from compiler.passes.cpu.shared.bfloats import store_bfloat16
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, let, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, load
from compiler.tir.vecmath import exp_up_to_0


@dataclass(frozen=True)
class ScoreRows:
    """The rows of queries at `places`.

    scores: float32; weights: the softmax, rounded; both [vector of keys, row, lane]; greatest: of
    each row, the greatest scores so far in the lanes of vectors and, behind them, of single
    columns; inverses: 1 over the sum of each row's powers.
    """

    attention: Attention
    unit: VectorUnit
    places: Sequence[Table]
    scores: Any
    weights: Any
    greatest: Sequence[Any]
    inverses: Any

    @classmethod
    def of(
        cls,
        attention: Attention,
        unit: VectorUnit,
        places: Sequence[Table],
        scores: Any,
        weights: Any,
    ) -> "ScoreRows":
        """Emit what is known of the rows before their scores are."""
        greatest = [accumulators(unit.lanes(32) + 1, float("-inf")) for _ in places]
        inverses = alloc([len(places)], "float32", "inverses")
        return cls(attention, unit, places, scores, weights, greatest, inverses)

    @property
    def in_vectors(self) -> bool:
        """Whether scores are changed in vectors: not by a mask that is chosen by the column."""
        return is_vectorizable(self.attention.changed, self.attention.column.var)

    def begin(self, vector: Expr, row: int) -> Expr:
        """Where a row's scores or weights by a vector of keys begin."""
        return (vector * len(self.places) + row) * self.unit.lanes(32)

    def change(self, vector: Expr, lane: Expr, slot: Expr, row: int, score: Expr) -> None:
        """Emit the changed score of one column of a row, or of a vector of them."""
        at, greatest = self.begin(vector, row) + lane, self.greatest[row]
        column = {self.attention.column.var: vector * self.unit.lanes(32) + lane}
        store(self.scores, self.attention.scored(score, {**self.places[row], **column}), at)
        store(greatest, tirx.max(load(greatest, [slot]), load(self.scores, [at])), slot)


def change_rest(rows: ScoreRows, first: Expr) -> None:
    """Emit the changes of the scores from the vector `first` on."""
    n, lanes = rows.attention.column.extent, rows.unit.lanes(32)
    for strip, lane, slot in columns(n, lanes, rows.in_vectors, first):
        for i in range(len(rows.places)):
            rows.change(strip, lane, slot, i, load(rows.scores, [rows.begin(strip, i) + lane]))


def round_weights(rows: ScoreRows) -> None:
    """weights = exp(score - greatest) over the sum of the row's, rounded; zeros up to the end of
    the last vector.

    Rows are computed side by side: what one waits for leaves time for another.
    """
    n, lanes = rows.attention.column.extent, rows.unit.lanes(32)
    whole = let("whole", tirx.ceildiv(n, lanes))
    count = range(len(rows.places))
    with serial(whole * lanes - n, "filling") as rest:
        for i in count:
            store(rows.scores, float("-inf"), rows.begin(whole - 1, i) + (lanes - 1 - rest))
    _add_up_powers(rows, whole)
    with serial(whole, "strip") as strip:
        for i in count:
            begin = rows.begin(strip, i)

            def weight(lane: Expr, begin: Expr = begin, i: int = i) -> Expr:
                return load(rows.scores, [begin + lane]) * load(rows.inverses, [i])

            store_bfloat16(rows.weights, begin, lanes, rows.unit, weight)


def _add_up_powers(rows: ScoreRows, whole: Expr) -> None:
    """Emit powers in place of the scores, and the inverses of their sums."""
    lanes, count = rows.unit.lanes(32), len(rows.places)
    greatest = alloc([count], "float32", "greatest")
    for i, found in enumerate(rows.greatest):
        # exp of a score less the greatest one cannot overflow.
        store(greatest, greatest_lane(found, lanes), i)
    sums = [accumulators(lanes, 0.0) for _ in range(count)]
    with serial(whole, "strip") as strip:
        for i, acc in enumerate(sums):
            begin = rows.begin(strip, i)
            with vectorize(lanes) as lane:
                score = load(rows.scores, [begin + lane])
                store(rows.scores, exp_up_to_0(score - load(greatest, [i])), begin + lane)
                store(acc, load(acc, [lane]) + load(rows.scores, [begin + lane]), lane)
    for i, acc in enumerate(sums):
        total = alloc([1], "float32", "total")
        store(total, halved(acc, lanes, operator.add), 0)
        store(rows.inverses, tirx.const(1, "float32") / load(total, [0]), i)
        if rows.attention.safe:
            # Values are weighed by zeros all the same, since 0 times NaN or infinity is NaN.
            with when(is_undefined(load(total, [0]))):
                with serial(whole, "strip") as strip, vectorize(lanes) as lane:
                    store(rows.scores, 0, rows.begin(strip, i) + lane)
                store(rows.inverses, 1, i)
