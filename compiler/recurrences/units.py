"""Where the numbers of a block of units lie: in scratch memory, the input and the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.recurrences.layer import LANES, Buffers, Recurrence
from compiler.tir.building import vectorize
from compiler.tir.exprs import Expr, load


@dataclass(frozen=True)
class Task:
    """Rows from `first` on, `count` of them, and their scratch memory: sums of a group of blocks,
    state, next state, what else the cell keeps, states that a GRU's reset has scaled, what a step
    quantizes.
    """

    layer: Recurrence
    io: Buffers
    first: Expr
    count: Expr
    accumulators: Any
    state: Any
    following: Any
    memory: Any = None
    reset: Any = None
    quantized: Any = None

    def time(self, step: Expr, row: Expr) -> Expr:
        """Where step `step` of row number `row` of the batch stands in time."""
        layer = self.layer
        if not layer.backward:
            return step
        # A row that is shorter than the batch's steps begins at its own end. What comes after its
        # last step is masked, but must not be read before the first.
        end = tirx.min(load(self.io.lengths, [row]), layer.steps) if layer.masked else layer.steps
        return tirx.max(end - 1 - step, 0)

    def active(self, step: Expr, row: Expr) -> Expr | bool:
        """True if row number `row` of the batch has such a step."""
        return step < load(self.io.lengths, [row]) if self.layer.masked else True


@dataclass(frozen=True)
class Units:
    """The units of block `block` for row `row` of a task at step `step`; lanes are within it. The
    sums of a block lie in slot `slot` of those that are held at once.
    """

    task: Task
    step: Expr
    block: Expr
    slot: Expr
    row: Expr

    def position(self, lane: Expr) -> Expr:
        """The position of a unit in a task's states."""
        return self.row * self.task.layer.width + self.block * LANES + lane

    def sum_index(self, gate: int, lane: Expr) -> Expr:
        """The position of a gate's sum in a task's accumulators."""
        layer = self.task.layer
        slot = self.row * layer.group_blocks + self.slot
        return (slot * layer.cell.gates + gate) * LANES + lane

    def sum(self, gate: int, lane: Expr) -> Expr:
        """A gate's sum."""
        return load(self.task.accumulators, [self.sum_index(gate, lane)])

    def start(self, gate: int, lane: Expr) -> Expr:
        """The value that a gate's sum starts from."""
        extra = self.task.io.extra
        # The reset scales the state's part of the candidate alone, with its bias. The input's part
        # is added when the gates are applied.
        if extra is not None and gate == 2:
            return load(extra, [self.block * LANES + lane])
        return self.input(gate, lane)

    def input(self, gate: int, lane: Expr) -> Expr:
        """The input's part of a gate's sum."""
        return load(self.task.io.x, self.input_index(gate, lane))

    def input_index(self, gate: int, lane: Expr) -> list[Expr]:
        """Where the input's part of a gate's sum is."""
        row = self.task.first + self.row
        return [self.task.time(self.step, row), row, self.column(gate, lane)]

    def column(self, gate: int, lane: Expr) -> Expr:
        """The position of a gate's unit among all columns of the weights."""
        return (self.block * self.task.layer.cell.gates + gate) * LANES + lane

    def weight(self, gate: int, k: Expr, lane: Expr) -> Expr:
        """A gate's weight for unit `k` of the state before."""
        return load(self.task.io.weights, [self.block, gate, k, lane])

    def peephole(self, index: int, lane: Expr, memory: Expr) -> Expr:
        """The memory's part of a gate's sum."""
        peepholes = self.task.io.peepholes
        if peepholes is None:
            return tirx.FloatImm("float32", 0)
        return load(peepholes, [index, self.block * LANES + lane]) * memory


def accumulator_order(rows: int, gates: int) -> Sequence[tuple[int, int]]:
    """The (row, gate) of each accumulator of a tile, in the order in which a step adds to them.

    Of rows and gates, the fewer stay in registers beside the accumulators while the others are
    walked.
    """
    pairs = [(r, g) for r in range(rows) for g in range(gates)]
    return sorted(pairs, key=lambda pair: pair[::-1]) if rows <= gates else pairs


def accumulators(
    rows: Sequence[Units], gates: Sequence[int]
) -> Iterator[tuple[Units, int, Expr, Expr]]:
    """(units, gate, lane, place) of every accumulator of a tile, a vector at a time."""
    for r, g in accumulator_order(len(rows), len(gates)):
        with vectorize(LANES) as v:
            yield rows[r], gates[g], v, (r * len(gates) + g) * LANES + v
