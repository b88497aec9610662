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
"""Rows that share what is read of matrices: with two vectors of 256 bits each, accumulators fill
half of the registers.
"""
_LANES = 16
"""Columns that are accumulated together, of several rows; of one row four times as many."""
_VECTOR = 8


@dataclass(frozen=True)
class Part:
    """The matrices of the columns from `start` on: down [count, depth, rank], rank a multiple of 8,
    and up [count, rank, width], numbers all but the count; the product is multiplied by `scale`.
    """

    down: Value
    up: Value
    start: int
    scale: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        """depth, rank and width."""
        (_, depth, rank), (_, _, width) = self.down.shape, self.up.shape
        return int(depth), int(rank), int(width)  # type: ignore[call-overload]


def add_low_rank(b: Builder, base: Value, x: Value, index: Value, parts: Sequence[Part]) -> Tensor:
    """base [batch, rows, columns] plus the products of x [batch, rows, depth] by the matrices
    before `index`, int32 [batch], all float32; entries whose index is not 1 to the count of
    matrices stay as they are.
    """

    def compute(*tensors: te.Tensor) -> te.Tensor:
        def statement(inputs: Sequence[Any], outputs: Sequence[Any]) -> Stmt:
            to, left, numbers, *stacks = inputs
            return _Program(parts, to, left, numbers, outputs[0], stacks).emit()

        return te.extern(
            [tuple(ex.prim(extent) for extent in base.shape)],
            list(tensors),
            statement,
            dtype=["float32"],
            name="add_low_rank",
        )

    stacks = [stack for part in parts for stack in (part.down, part.up)]
    attrs = {"op_pattern": OPAQUE}
    return b.te(compute, base, x, index, *stacks, name="add_low_rank", attrs=attrs)


@dataclass(frozen=True)
class _Program:
    """The buffers of the program; stacks: down and up of each part."""

    parts: Sequence[Part]
    base: Any
    x: Any
    index: Any
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
            for c in strips(self.base.shape[2], _LANES):
                store(self.out, self.base[entry, first + row, c], entry, first + row, c)
        slot = let("slot", self.index[entry].astype("int64"))
        for number, part in enumerate(self.parts):
            down, up = self.stacks[2 * number : 2 * number + 2]
            with when(tirx.And(slot > 0, slot <= down.shape[0])):
                block = _Block(self, part, down, up, entry, slot - 1)
                groups = let("groups", tirx.truncdiv(count, const(_ROWS)))
                with serial(groups, "group") as group:
                    block.emit(first + group * _ROWS, _ROWS)
                with serial(count - groups * _ROWS, "rest") as rest:
                    block.emit(first + groups * _ROWS + rest, 1)


@dataclass(frozen=True)
class _Block:
    """The product of one part for rows of an entry by matrix number `slot`."""

    program: _Program
    part: Part
    down: Any
    up: Any
    entry: Expr
    slot: Expr

    def emit(self, first: Expr, rows: int) -> None:
        """Emit so many rows from `first` on."""
        _, rank, _ = self.part.sizes
        low = alloc([rows, rank], "float32", "low")
        for start, width in blocks(rank, _LANES if rank % _LANES == 0 else _VECTOR):
            self._emit_low(low, first, rows, start, width)
        for start, width in blocks(self.part.sizes[2], _LANES if rows > 1 else 4 * _LANES):
            self._emit_columns(low, first, rows, start, width)

    def _emit_low(self, low: Any, first: Expr, rows: int, start: Expr, width: int) -> None:
        """Emit columns of the product by `down`. Of one row, steps of the depth add to accumulators
        of their own, so that none waits for the one before.
        """
        depth, _, _ = self.part.sizes
        strands = _ROWS // rows
        acc = alloc([strands * rows, width], "float32", "acc")
        for each in range(strands * rows):
            for lane in across(width, _VECTOR):
                store(acc, 0, each, lane)

        def add(k: Expr, strand: int) -> None:
            for row in range(rows):
                left = self.program.x[self.entry, first + row, k]
                for lane in across(width, _VECTOR):
                    term = left * self.down[self.slot, k, start + lane]
                    each = strand * rows + row
                    store(acc, load(acc, [each, lane]) + term, each, lane)

        with serial(depth // strands, "k") as k:
            for strand in range(strands):
                add(k * strands + strand, strand)
        for k in range(depth // strands * strands, depth):
            add(const(k), 0)
        for row in range(rows):
            for lane in across(width, _VECTOR):
                total = load(acc, [row, lane])
                for strand in range(1, strands):
                    total = total + load(acc, [strand * rows + row, lane])
                store(low, total * tirx.const(self.part.scale, "float32"), row, start + lane)

    def _emit_columns(self, low: Any, first: Expr, rows: int, start: Expr, width: int) -> None:
        """Emit columns of the result, which has the base already."""
        _, rank, _ = self.part.sizes
        out, column, lanes = self.program.out, self.part.start + start, min(width, _VECTOR)
        acc = alloc([rows, width], "float32", "sum")
        for row in range(rows):
            for lane in across(width, lanes):
                store(acc, out[self.entry, first + row, column + lane], row, lane)
        with serial(rank, "j") as j:
            for row in range(rows):
                for lane in across(width, lanes):
                    term = low[row, j] * self.up[self.slot, j, start + lane]
                    store(acc, load(acc, [row, lane]) + term, row, lane)
        for row in range(rows):
            for lane in across(width, lanes):
                store(out, load(acc, [row, lane]), self.entry, first + row, column + lane)
