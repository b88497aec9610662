"""Products of small integers, exact: pairs of 16-bit integers multiplied and added to 32 bits by one instruction.

The left side holds integers in float32, with a window of a convolution or without; a task writes its rows as pairs (k, k + depth / 2)
into scratch memory, for each place in the window. The right side is stored in 8 or 16 bits, in panels of pairs.
"""

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.kernels.micro import along, in_panel, least
from compiler.passes.kernels.panels import PanelSums, emit_panel_sums, read_panel_sums
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, Table, const, fixed, load, substitute
from compiler.passes.tir.loops import PARALLEL_FLOPS, Stmt, allocate, seq, serial, share_out, some_of, store, strips
from compiler.passes.tir.stages import Program

STAGE = "pair_product"
"""Name of the program's stage, by which the kernel is found."""
SIZES = (1, 2, 4, 6)
"""Rows of a register tile."""
TILES = 4
PANELS = 16
"""Tiles and panels of a task."""


def read_pairs(program: Program) -> PanelSums | None:
    """The program as `compiler.passes.pack_integer` writes it; None for another.

    Its weights are [panels, pairs of a row, width, 2].
    """
    return read_panel_sums(program, STAGE)


def emit_pairs(pairs: PanelSums, machine: Machine) -> Stmt:
    """The kernel, for a machine that has such an instruction."""
    return emit_panel_sums(pairs, lambda known, m: _Kernel(known, machine, m).emit())


@dataclass(frozen=True)
class _Kernel:
    pairs: PanelSums
    machine: Machine
    m: Expr

    @property
    def columns(self) -> int:
        return fixed(self.pairs.column.extent)

    @property
    def depth(self) -> int:
        """Elements at one place of the window."""
        return fixed(self.pairs.along.extent)

    @property
    def half(self) -> int:
        """Pairs at one place of the window."""
        return -(-self.depth // 2)

    @property
    def panels(self) -> int:
        return self.pairs.packed[0]

    @property
    def length(self) -> int:
        """Pairs of a row."""
        return self.pairs.packed[1]

    @property
    def width(self) -> int:
        return self.pairs.packed[2]

    @property
    def lanes(self) -> int:
        return self.machine.lanes(32)

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
            return self._task(t // const(groups) * const(self.rows), t % const(groups) * const(PANELS))

        return share_out(total, work >= const(PARALLEL_FLOPS), task)

    def _task(self, first: Expr, panel: Expr) -> Stmt:
        length, width = self.length, self.width
        left, made = allocate([self.rows * length], "int32", "left", "global")
        sums, more = allocate([self.rows * PANELS * width], "float32", "sums", "global")
        count = tirx.min(const(self.rows), self.m - first)
        panels = some_of(self.panels, PANELS, panel)

        def tiles(p: Expr) -> Stmt:
            tallest = const(SIZES[-1])
            return serial(tirx.ceildiv(count, tallest), lambda t: tile(t * tallest, p), "tile")

        def tile(row: Expr, p: Expr) -> Stmt:
            return least(SIZES, count - row, lambda size: self._tile(size, left, sums, row, panel + p, p))

        def packed(at: Table, r: Expr) -> Stmt:
            place, to = substitute(self.pairs.place, at), r * const(length)
            return self.pairs.over_window(lambda position, moved: self._pack(left, place + moved, to + position * const(self.half)))

        gather = serial(count, lambda r: self.pairs.at(first + r, lambda at: packed(at, r)), "row")
        return seq(made, more, gather, serial(panels, tiles, "panel"), self._finish(sums, first, count, panel, panels))

    def _pack(self, left: Any, place: Expr, to: Expr) -> Stmt:
        """The elements at `place` as pairs: the first half in the low bits, the second in the high ones."""
        half = const(self.half)

        def part(index: Expr) -> Expr:
            return load(self.pairs.source, [place + index]).astype("int32")

        def low(k: Expr) -> Expr:
            return tirx.bitwise_and(part(k), tirx.const(0xFFFF, "int32"))

        def both(k: Expr) -> Stmt:
            high = tirx.shift_left(part(half + k), tirx.const(16, "int32"))
            return store(left, tirx.bitwise_or(low(k), high), to + k)

        full = self.depth - self.half
        last = store(left, low(const(full)), to + const(full)) if full < self.half else None
        return seq(strips(const(full), self.lanes, both), last)

    def _tile(self, rows: int, left: Any, sums: Any, row: Expr, panel: Expr, p: Expr) -> Stmt:
        length, width, lanes = self.length, self.width, self.lanes
        acc, allocation = allocate([rows * width], "int32", "acc")
        parts = [(i, start) for i in range(rows) for start in range(0, width, lanes)]

        def place(i: int, start: int) -> Expr:
            return prim.Ramp(const(i * width + start), const(1), lanes)

        def step(k: Expr) -> Stmt:
            base = ((panel * const(length) + k) * const(width)) * const(2)
            weights = [
                load(self.pairs.weights, [prim.Ramp(base + const(2 * start), const(1), 2 * lanes)]).astype(f"int16x{2 * lanes}")
                for start in range(0, width, lanes)
            ]
            given = [prim.Broadcast(load(left, [(row + const(i)) * const(length) + k]), lanes) for i in range(rows)]
            return seq(
                *(
                    tirx.BufferStore(
                        acc, self._multiplied(load(acc, [place(i, start)]), given[i], weights[start // lanes]), [place(i, start)]
                    )
                    for i, start in parts
                )
            )

        def keep(i: int, start: int) -> Stmt:
            to = ((row + const(i)) * const(PANELS) + p) * const(width) + const(start)
            return tirx.BufferStore(sums, load(acc, [place(i, start)]).astype(f"float32x{lanes}"), [prim.Ramp(to, const(1), lanes)])

        over_length = along(const(length), self.machine.together if rows == SIZES[-1] else 1)
        zero = prim.Broadcast(tirx.const(0, "int32"), lanes)
        clear = [tirx.BufferStore(acc, zero, [place(*part)]) for part in parts]
        return seq(allocation, *clear, over_length(step), *(keep(*part) for part in parts))

    def _multiplied(self, total: Expr, given: Expr, weights: Expr) -> Expr:
        """The total and the products of the pairs."""
        name = self.machine.pair_product
        assert name is not None
        halves = tirx.reinterpret(f"int16x{2 * self.lanes}", given)
        return total + tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", name, halves, weights)

    def _finish(self, sums: Any, first: Expr, count: Expr, panel: Expr, panels: Expr) -> Stmt:
        """What was fused behind the product, row by row."""
        width, pairs = self.width, self.pairs

        def line(at: Table, row: Expr, p: Expr) -> Stmt:
            start, column = (row * const(PANELS) + p) * const(width), (panel + p) * const(width)

            def point(lane: Expr) -> Stmt:
                return pairs.epilogue.write(load(sums, [start + lane]), {**at, pairs.column.var: column + lane})

            return in_panel(panel + p, self.columns, width, self.lanes, point)

        return serial(count, lambda r: pairs.at(first + r, lambda at: serial(panels, lambda p: line(at, r, p), "panel")), "row")
