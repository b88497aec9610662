"""Softmax of rows of scores, with results rounded to bfloat16.

The scores of a block of queries are one buffer [vector of keys, row, lane] (`bfloat16_emit`). Scale
and mask are applied, and the greatest scores of each row updated, before a tile of scores leaves
its registers. One sweep then computes the powers and adds them up, a second one divides by the sum
and rounds. Columns that fill no panel are changed in a sweep of their own, one by one where they
fill no vector, since a mask may end with the row; so are all columns of a mask that has no vector
form.
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
    is_undefined,
    reduce_buffer,
)
from compiler.passes.cpu.shared.bfloats import store_bfloat16
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, let, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, load
from compiler.tir.vecmath import exp_up_to_0


@dataclass(frozen=True)
class ScoreRows:
    """The rows of queries at `positions`.

    scores: float32; weights: the softmax, rounded; both [vector of keys, row, lane]; greatest: for
    each row, the greatest scores so far in each lane of vectors and, behind them, of columns that
    fill no vector; inverses: 1 over the sum of each row's powers.
    """

    attention: Attention
    unit: VectorUnit
    positions: Sequence[Table]
    scores: Any
    weights: Any
    greatest: Sequence[Any]
    inverses: Any

    @classmethod
    def of(
        cls,
        attention: Attention,
        unit: VectorUnit,
        positions: Sequence[Table],
        scores: Any,
        weights: Any,
    ) -> "ScoreRows":
        """Emit the buffers that scores are reduced into."""
        greatest = [accumulators(unit.lanes(32) + 1, float("-inf")) for _ in positions]
        inverses = alloc([len(positions)], "float32", "inverses")
        return cls(attention, unit, positions, scores, weights, greatest, inverses)

    @property
    def in_vectors(self) -> bool:
        """True if scores are changed in vectors: not by a mask that is selected by the column."""
        return is_vectorizable(self.attention.changed, self.attention.column.var)

    def begin(self, vector: Expr, row: int) -> Expr:
        """The index of the first of a row's scores or weights by a vector of keys."""
        return (vector * len(self.positions) + row) * self.unit.lanes(32)

    def change(self, vector: Expr, lane: Expr, slot: Expr, row: int, score: Expr) -> None:
        """Emit the changed score of one column of a row, or of a vector of them."""
        index, greatest = self.begin(vector, row) + lane, self.greatest[row]
        column = {self.attention.column.var: vector * self.unit.lanes(32) + lane}
        store(
            self.scores,
            self.attention.change_score(score, {**self.positions[row], **column}),
            index,
        )
        store(greatest, tirx.max(load(greatest, [slot]), load(self.scores, [index])), slot)


def change_rest(rows: ScoreRows, first: Expr) -> None:
    """Emit the changes of the scores from the vector `first` on."""
    n, lanes = rows.attention.column.extent, rows.unit.lanes(32)
    for strip, lane, slot in columns(n, lanes, rows.in_vectors, first):
        for i in range(len(rows.positions)):
            rows.change(strip, lane, slot, i, load(rows.scores, [rows.begin(strip, i) + lane]))


def emit_weights(rows: ScoreRows) -> None:
    """Emit weights = exp(score - greatest) over the row's sum, rounded; zeros up to the end of the
    last vector.

    Rows are interleaved to hide latencies.
    """
    n, lanes = rows.attention.column.extent, rows.unit.lanes(32)
    vectors = let("whole", tirx.ceildiv(n, lanes))
    count = range(len(rows.positions))
    with serial(vectors * lanes - n, "filling") as rest:
        for i in count:
            store(rows.scores, float("-inf"), rows.begin(vectors - 1, i) + (lanes - 1 - rest))
    _add_up_powers(rows, vectors)
    with serial(vectors, "strip") as strip:
        for i in count:
            begin = rows.begin(strip, i)

            def weight(lane: Expr, begin: Expr = begin, i: int = i) -> Expr:
                return load(rows.scores, [begin + lane]) * load(rows.inverses, [i])

            store_bfloat16(rows.weights, begin, lanes, rows.unit, weight)


def _add_up_powers(rows: ScoreRows, vectors: Expr) -> None:
    """Emit powers in place of the scores, and the inverses of their sums."""
    lanes, count = rows.unit.lanes(32), len(rows.positions)
    greatest = alloc([count], "float32", "greatest")
    for i, lane_maxima in enumerate(rows.greatest):
        # exp of a score less the greatest one cannot overflow.
        store(greatest, greatest_lane(lane_maxima, lanes), i)
    accs = [accumulators(lanes, 0.0) for _ in range(count)]
    with serial(vectors, "strip") as strip:
        for i, acc in enumerate(accs):
            begin = rows.begin(strip, i)
            with vectorize(lanes) as lane:
                score = load(rows.scores, [begin + lane])
                store(rows.scores, exp_up_to_0(score - load(greatest, [i])), begin + lane)
                store(acc, load(acc, [lane]) + load(rows.scores, [begin + lane]), lane)
    for i, acc in enumerate(accs):
        total = alloc([1], "float32", "total")
        store(total, reduce_buffer(acc, lanes, operator.add), 0)
        store(rows.inverses, tirx.const(1, "float32") / load(total, [0]), i)
        if rows.attention.safe:
            # Values are multiplied by zeros all the same, since 0 * NaN and 0 * inf are NaN.
            with when(is_undefined(load(total, [0]))):
                with serial(vectors, "strip") as strip, vectorize(lanes) as lane:
                    store(rows.scores, 0, rows.begin(strip, i) + lane)
                store(rows.inverses, 1, i)
