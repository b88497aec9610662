"""Grouped low-rank products: to each entry of a batch the product by two narrow matrices of its own
is added, which stay where they are.

Entries are tasks of the threads, long ones in several. A task copies its rows of the base, and
where its entry has matrices multiplies its rows by them, some rows at a time: those share what is
read. Entries without matrices cost a look at their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.programs import OPAQUE
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.shapes import extents as ex
from compiler.tir.building import (
    across,
    alloc,
    blocks,
    let,
    let_opaque,
    parallel,
    serial,
    statements,
    store,
    strips,
    when,
)
from compiler.tir.exprs import Expr, const, load
from compiler.tir.loops import PARALLEL_FLOPS, Stmt

_TASK = 16
"""Rows of a task."""
_ROWS = 4
"""Rows that share what is read of matrices."""
_STRANDS = 4
"""Rows of a matrix that are read side by side: as many memory streams, and accumulators."""
_VECTOR = 8


@dataclass(frozen=True)
class Part:
    """The matrices of the columns from `start` on: down [count, rank, depth] and up [count, rank,
    width], numbers all but the count; the matmul is multiplied by `scale`.

    module: the column of the ranks that says how many rows of the matrices count.
    """

    down: Value
    up: Value
    start: int
    scale: float
    module: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """depth, rank and width."""
        (_, rank, depth), (_, _, width) = self.down.shape, self.up.shape
        return int(depth), int(rank), int(width)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Choice:
    """The matrices of entries. index: int32 [batch]: those before this number, from 1 on, none for
    any other; ranks: int32 [count, modules].
    """

    index: Value
    ranks: Value


def add_low_rank(
    b: Builder, base: Value, x: Value, choice: Choice, parts: Sequence[Part]
) -> Tensor:
    """base [batch, rows, columns] plus the matmuls of x [batch, rows, depth] by the first rows of
    its entry's matrices, as many as the ranks say, all float32.
    """

    def compute(*tensors: te.Tensor) -> te.Tensor:
        def statement(inputs: Sequence[Any], outputs: Sequence[Any]) -> Stmt:
            to, left, index, ranks, *stacks = inputs
            return _Program(parts, to, left, index, ranks, outputs[0], stacks).emit()

        return te.extern(
            [tuple(ex.prim(extent) for extent in base.shape)],
            list(tensors),
            statement,
            dtype=["float32"],
            name="add_low_rank",
        )

    values = [choice.index, choice.ranks]
    stacks = [stack for part in parts for stack in (part.down, part.up)]
    attrs = {"op_pattern": OPAQUE}
    return b.te(compute, base, x, *values, *stacks, name="add_low_rank", attrs=attrs)


@dataclass(frozen=True)
class _Program:
    """The buffers of the program; stacks: down and up of each part."""

    parts: Sequence[Part]
    base: Any
    x: Any
    index: Any
    ranks: Any
    out: Any
    stacks: Sequence[Any]

    def emit(self) -> Stmt:
        batch, rows, columns = self.base.shape
        with statements() as body:
            used = let("used", self._used(batch))
            work = used * rows * self._work() + batch * rows * columns
            tasks = let("tasks", tirx.ceildiv(rows, const(_TASK)))
            with parallel(batch * tasks, work >= const(PARALLEL_FLOPS), "task") as task:
                entry = let("entry", tirx.truncdiv(task, tasks))
                first = let("first", (task - entry * tasks) * _TASK)
                count = let("count", tirx.min(const(_TASK), rows - first))
                self._emit_task(entry, first, count)
        return body.stmt

    def _used(self, batch: Expr) -> Expr:
        """The number of entries with matrices."""
        used = alloc([1], "int64", "used")
        store(used, 0, const(0))
        with serial(batch, "n") as n, when(self.index[n] > 0):
            store(used, used[const(0)] + 1, const(0))
        return used[const(0)]

    def _work(self) -> int:
        """Operations of a row with matrices."""
        return sum(2 * rank * (depth + width) for depth, rank, width in self._sizes())

    def _sizes(self) -> list[tuple[int, int, int]]:
        return [part.sizes for part in self.parts]

    def _emit_task(self, entry: Expr, first: Expr, count: Expr) -> None:
        """Emit some rows of an entry."""
        with serial(count, "row") as row:
            for c in strips(self.base.shape[2], _VECTOR):
                store(self.out, self.base[entry, first + row, c], entry, first + row, c)
        slot = let("slot", self.index[entry].astype("int64"))
        with when(tirx.And(slot > 0, slot <= self.ranks.shape[0])):
            for number, part in enumerate(self.parts):
                down, up = self.stacks[2 * number : 2 * number + 2]
                most = const(part.sizes[1])
                rank = self.ranks[slot - 1, part.module].astype("int64")
                rank = let_opaque("rank", tirx.max(tirx.min(rank, most), const(0)))
                with when(tirx.And(rank > 0, slot <= down.shape[0])):
                    self._emit_part(
                        _Block(self, part, down, up, entry, slot - 1, rank), first, count
                    )

    def _emit_part(self, block: "_Block", first: Expr, count: Expr) -> None:
        groups = let("groups", tirx.truncdiv(count, const(_ROWS)))
        with serial(groups, "group") as group:
            block.emit(first + group * _ROWS, _ROWS)
        with serial(count - groups * _ROWS, "rest") as rest:
            block.emit(first + groups * _ROWS + rest, 1)


@dataclass(frozen=True)
class _Block:
    """The matmul of one part for rows of an entry by the first `rank` rows of matrices number
    `slot`.
    """

    program: _Program
    part: Part
    down: Any
    up: Any
    entry: Expr
    slot: Expr
    rank: Expr

    def emit(self, first: Expr, rows: int) -> None:
        """Emit so many rows from `first` on."""
        strands = _STRANDS if rows == 1 else _STRANDS // 2
        # A group of strands may end behind the rank, and computes numbers that nobody reads.
        most = -(-self.part.sizes[1] // _STRANDS) * _STRANDS
        low = alloc([rows, most], "float32", "low")
        groups = tirx.truncdiv(self.rank + const(strands - 1), const(strands))
        with serial(groups, "group") as group:
            self._emit_low(low, first, rows, let("j", group * strands), strands)
        full = let("full", tirx.truncdiv(self.rank, const(_STRANDS)))
        with serial(full, "group") as group:
            self._emit_columns(low, first, rows, group * _STRANDS, _STRANDS)
        with serial(self.rank - full * _STRANDS, "rest") as rest:
            self._emit_columns(low, first, rows, full * _STRANDS + rest, 1)

    def _emit_low(self, low: Any, first: Expr, rows: int, start: Expr, strands: int) -> None:
        """Emit sums along the depth: those of `strands` rows of `down` from `start` on."""
        depth, rank, _ = self.part.sizes
        width = 2 * _VECTOR if rows == 1 else _VECTOR
        acc = alloc([strands * rows, width], "float32", "acc")
        for each in range(strands * rows):
            for lane in across(width, _VECTOR):
                store(acc, 0, each, lane)
        # Rows behind the last one are the last one again.
        rows_of = [let("r", tirx.min(start + i, const(rank - 1))) for i in range(strands)]

        def term(row: int, strand: int, k: Expr) -> Expr:
            x = self.program.x[self.entry, first + row, k]
            return x * self.down[self.slot, rows_of[strand], k]

        with serial(depth // width, "k") as k:
            for row in range(rows):
                for strand in range(strands):
                    each = strand * rows + row
                    for lane in across(width, _VECTOR):
                        total = load(acc, [each, lane]) + term(row, strand, k * width + lane)
                        store(acc, total, each, lane)
        for row in range(rows):
            for strand in range(strands):
                total = _sum_lanes(acc, strand * rows + row, width)
                for k in range(depth // width * width, depth):
                    total = total + term(row, strand, const(k))
                scaled = total * tirx.const(self.part.scale, "float32")
                store(low, scaled, row, start + strand)

    def _emit_columns(self, low: Any, first: Expr, rows: int, start: Expr, strands: int) -> None:
        """Add to all columns what some rows of `up` from `start` on give."""
        out, begin = self.program.out, self.part.start
        for column, width in blocks(self.part.sizes[2], 2 * _VECTOR):
            lanes = min(width, _VECTOR)
            for row in range(rows):
                for lane in across(width, lanes):
                    total = out[self.entry, first + row, begin + column + lane]
                    for strand in range(strands):
                        up = self.up[self.slot, start + strand, column + lane]
                        total = total + low[row, start + strand] * up
                    store(out, total, self.entry, first + row, begin + column + lane)


def _sum_lanes(acc: Any, row: int, width: int) -> Expr:
    """The sum of a row of accumulators, halves added up until one is left."""
    while width > 1:
        width //= 2
        for lane in across(width, min(width, _VECTOR)):
            store(acc, load(acc, [row, lane]) + load(acc, [row, width + lane]), row, lane)
    return load(acc, [row, 0])
