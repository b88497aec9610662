"""Products of small integers, exact: two of 16 bits or four of 8 bits multiplied and added to 32
bits by one instruction.

The left side holds integers in float32, with a window of a convolution or without; a task writes
its rows as groups of integers into scratch memory, for each place in the window. The right side is
stored in panels of groups. Integers of 9 bits, which an 8-bit integer less its zero point may take,
fit into 8 once the least of their row is subtracted: that, times the sum of each column, is added
again in the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.register_tile import along, in_panel, least
from compiler.passes.cpu.shared.windowed import PanelSums, emit_panel_sums, read_panel_sums
from compiler.targets.vector_unit import IntegerProduct, VectorUnit
from compiler.tir.exprs import Expr, Table, const, fixed, load, substitute
from compiler.tir.loops import (
    PARALLEL_FLOPS,
    Stmt,
    allocate,
    blocks,
    seq,
    serial,
    share_out,
    some_of,
    store,
    strips,
    vectorized,
)
from compiler.tir.stages import Program

STAGE = "integer_product"
"""Name of the program's stage, by which the kernel is found."""
SIZES = (1, 2, 4, 6)
"""Rows of a register tile."""
TILES = 4
PANELS = 16
"""Tiles and panels of a task."""


def read_integers(program: Program) -> PanelSums | None:
    """The program as `compiler.passes.pack.integer` writes it; None for another.

    Its weights are [panels, groups of a row, width, group], with a row of sums behind the groups
    where the left side is of 8 bits.
    """
    return read_panel_sums(program, STAGE)


def emit_integers(sums: PanelSums, unit: VectorUnit) -> Stmt:
    """The kernel, for a machine that has an instruction for such groups."""
    product = next(product for product in unit.integer_products if product.group == sums.packed[3])
    return emit_panel_sums(sums, lambda known, m: _Kernel(known, unit, product, m).emit())


@dataclass(frozen=True)
class _Left:
    """A task's rows as groups of integers, and what was subtracted from each row, None where
    nothing is.
    """

    groups: Any
    shifts: Any


@dataclass(frozen=True)
class _Kernel:
    program: PanelSums
    unit: VectorUnit
    product: IntegerProduct
    m: Expr

    @property
    def columns(self) -> int:
        return fixed(self.program.column.extent)

    @property
    def depth(self) -> int:
        """Elements at one place of the window."""
        return fixed(self.program.along.extent)

    @property
    def part(self) -> int:
        """Groups at one place of the window."""
        return -(-self.depth // self.product.group)

    @property
    def shifted(self) -> bool:
        """Whether rows are shifted to fit."""
        return np.iinfo(self.product.left).bits == 8

    @property
    def panels(self) -> int:
        return self.program.packed[0]

    @property
    def length(self) -> int:
        """Groups of a row."""
        return self.program.packed[1] - (1 if self.shifted else 0)

    @property
    def width(self) -> int:
        return self.program.packed[2]

    @property
    def lanes(self) -> int:
        return self.unit.lanes(32)

    @property
    def rows(self) -> int:
        """Rows of a task."""
        return SIZES[-1] * TILES

    def emit(self) -> Stmt:
        """Tasks of some rows by some panels."""
        groups = -(-self.panels // PANELS)
        total = tirx.ceildiv(self.m, const(self.rows)) * const(groups)
        work = self.m * const(2 * self.length * self.columns)

        def task(t: Expr) -> Stmt:
            return self._task(
                t // const(groups) * const(self.rows), t % const(groups) * const(PANELS)
            )

        return share_out(total, work >= const(PARALLEL_FLOPS), task)

    def _task(self, first: Expr, panel: Expr) -> Stmt:
        length, width = self.length, self.width
        groups, made = allocate([self.rows * length], "int32", "left", "global")
        sums, more = allocate([self.rows * PANELS * width], "float32", "sums", "global")
        shifts, last = allocate([self.rows], "int32", "shifts") if self.shifted else (None, None)
        left = _Left(groups, shifts)
        count = tirx.min(const(self.rows), self.m - first)
        panels = some_of(self.panels, PANELS, panel)

        def tiles(p: Expr) -> Stmt:
            tallest = const(SIZES[-1])
            return serial(tirx.ceildiv(count, tallest), lambda t: tile(t * tallest, p), "tile")

        def tile(row: Expr, p: Expr) -> Stmt:
            return least(
                SIZES, count - row, lambda size: self._tile(size, left, sums, row, panel + p, p)
            )

        gather = serial(
            count,
            lambda r: self.program.at(
                first + r, lambda at: self._gather(left, substitute(self.program.place, at), r)
            ),
            "row",
        )
        return seq(
            made,
            more,
            last,
            gather,
            serial(panels, tiles, "panel"),
            self._finish(sums, first, count, panel, panels),
        )

    def _gather(self, left: _Left, place: Expr, row: Expr) -> Stmt:
        """Row number `row` of a task, whose window begins at `place`."""
        to = row * const(self.length)

        def packed(shift: Expr | None) -> Stmt:
            return self.program.over_window(
                lambda position, moved: self._pack(
                    left.groups, place + moved, to + position * const(self.part), shift
                )
            )

        if left.shifts is None:
            return packed(None)
        return seq(
            self._least(place, lambda low: store(left.shifts, low, row)),
            packed(load(left.shifts, [row])),
        )

    def _least(self, place: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
        """body(by how much to shift the row whose window begins at `place`): by its least element,
        or 0 where that is less.

        Zero is within the range of every 8-bit integer less its zero point.
        """
        lows, allocation = allocate([self.lanes], "float32", "lows")
        clear = vectorized(self.lanes, lambda lane: store(lows, tirx.const(0, "float32"), lane))

        def lower(start: Expr, width: int) -> Stmt:
            return vectorized(
                width,
                lambda lane: store(
                    lows,
                    tirx.min(load(lows, [lane]), load(self.program.source, [start + lane])),
                    lane,
                ),
            )

        over = self.program.over_window(
            lambda _position, moved: blocks(
                const(self.depth),
                self.lanes,
                lambda start, width: lower(place + moved + start, width),
            )
        )
        low = reduce(tirx.min, [load(lows, [const(lane)]) for lane in range(self.lanes)]).astype(
            "int32"
        )
        return seq(
            allocation,
            clear,
            over,
            body(low - tirx.const(np.iinfo(self.product.left).min, "int32")),
        )

    def _pack(self, groups: Any, place: Expr, to: Expr, shift: Expr | None) -> Stmt:
        """The elements at `place` in groups: those of the first part of the depth in the lowest
        bits.
        """
        group, part = self.product.group, self.part
        bits = 32 // group

        def element(number: int, k: Expr) -> Expr:
            value = load(self.program.source, [place + const(number * part) + k]).astype("int32")
            low = tirx.bitwise_and(
                value if shift is None else value - shift, tirx.const((1 << bits) - 1, "int32")
            )
            return low if number == 0 else tirx.shift_left(low, tirx.const(bits * number, "int32"))

        # Beyond the depth a part has nothing, and its weights are zeros.
        held = [min(max(self.depth - number * part, 0), part) for number in range(group)]

        def stretch(begin: int, end: int) -> Stmt:
            numbers = [number for number in range(group) if held[number] >= end]

            def write(k: Expr) -> Stmt:
                return store(
                    groups,
                    reduce(
                        tirx.bitwise_or, [element(number, const(begin) + k) for number in numbers]
                    ),
                    to + const(begin) + k,
                )

            return strips(const(end - begin), self.lanes, write)

        return seq(*(stretch(begin, end) for begin, end in pairwise(sorted({0, *held}))))

    def _tile(self, rows: int, left: _Left, sums: Any, row: Expr, panel: Expr, p: Expr) -> Stmt:
        length, width, lanes = self.length, self.width, self.lanes
        acc, allocation = allocate([rows * width], "int32", "acc")
        parts = [(i, start) for i in range(rows) for start in range(0, width, lanes)]

        def place(i: int, start: int) -> Expr:
            return prim.Ramp(const(i * width + start), const(1), lanes)

        def step(k: Expr) -> Stmt:
            weights = {start: self._weights(panel, k, start) for start in range(0, width, lanes)}
            given = [
                prim.Broadcast(load(left.groups, [(row + const(i)) * const(length) + k]), lanes)
                for i in range(rows)
            ]
            return seq(
                *(
                    tirx.BufferStore(
                        acc,
                        self._multiplied(load(acc, [place(i, start)]), given[i], weights[start]),
                        [place(i, start)],
                    )
                    for i, start in parts
                )
            )

        def keep(i: int, start: int) -> Stmt:
            to, total = (
                ((row + const(i)) * const(PANELS) + p) * const(width) + const(start),
                load(acc, [place(i, start)]),
            )
            if left.shifts is not None:
                columns = tirx.reinterpret(
                    f"int32x{lanes}", self._weights(panel, const(length), start)
                )
                total = total + prim.Broadcast(load(left.shifts, [row + const(i)]), lanes) * columns
            return tirx.BufferStore(
                sums, total.astype(f"float32x{lanes}"), [prim.Ramp(to, const(1), lanes)]
            )

        over_length = along(const(length), self.unit.together if rows == SIZES[-1] else 1)
        zero = prim.Broadcast(tirx.const(0, "int32"), lanes)
        clear = [tirx.BufferStore(acc, zero, [place(*part)]) for part in parts]
        return seq(allocation, *clear, over_length(step), *(keep(*part) for part in parts))

    def _weights(self, panel: Expr, k: Expr, start: int) -> Expr:
        """Row `k` of a panel, a vector of its columns from `start` on."""
        group, lanes = self.product.group, self.lanes
        rows = const(self.program.packed[1])
        place = ((panel * rows + k) * const(self.width) + const(start)) * const(group)
        return load(self.program.weights, [prim.Ramp(place, const(1), group * lanes)]).astype(
            f"{self.product.right}x{group * lanes}"
        )

    def _multiplied(self, total: Expr, given: Expr, weights: Expr) -> Expr:
        """The total and the products of the groups."""
        product, lanes = self.product, self.lanes
        left = tirx.reinterpret(f"{product.right}x{product.group * lanes}", given)
        if product.adds:
            return tirx.call_llvm_pure_intrin(
                f"int32x{lanes}", product.intrinsic, total, left, weights
            )
        return total + tirx.call_llvm_pure_intrin(
            f"int32x{lanes}", product.intrinsic, left, weights
        )

    def _finish(self, sums: Any, first: Expr, count: Expr, panel: Expr, panels: Expr) -> Stmt:
        """What was fused behind the product, row by row."""
        width, program = self.width, self.program

        def line(at: Table, row: Expr, p: Expr) -> Stmt:
            start, column = (row * const(PANELS) + p) * const(width), (panel + p) * const(width)

            def point(lane: Expr) -> Stmt:
                return program.epilogue.write(
                    load(sums, [start + lane]), {**at, program.column.var: column + lane}
                )

            return in_panel(panel + p, self.columns, width, self.lanes, point)

        return serial(
            count,
            lambda r: program.at(
                first + r, lambda at: serial(panels, lambda p: line(at, r, p), "panel")
            ),
            "row",
        )
