"""Products of small integers, exact: pairs of 16-bit integers multiplied and added to 32 bits by one instruction.

The left side holds integers in float32, with a window of a convolution or without; a task writes its rows as pairs (k, k + depth / 2)
into scratch memory, for each place in the window. The right side is stored in 8 or 16 bits, in panels of pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.kernels.anchor import Anchored, read_anchored
from compiler.passes.kernels.gemm import PARALLEL_FLOPS
from compiler.passes.kernels.nest import combine_of, vectorizable
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, as_int, const, load, rewrite, substitute
from compiler.passes.tir.flat import stride
from compiler.passes.tir.loops import (
    Stmt,
    allocate,
    bind_all,
    bind_opaque,
    parallel,
    product,
    seq,
    serial,
    store,
    strips,
    unfuse,
    when,
)
from compiler.passes.tir.stages import Axis, Program

STAGE = "pair_product"
"""Name of the program's stage, by which the kernel is found."""
SIZES = (1, 2, 4, 6)
"""Rows of a register tile."""
TILES = 4
PANELS = 16
"""Tiles and panels of a task."""

Table = dict[Any, Expr]


@dataclass(frozen=True)
class Pairs:
    """left[place + window + k] times weights, a flat buffer [panels, window * half, width, 2], for `rows` x `column`, k below `depth`.

    steps: by how much each axis of the window moves the place.
    """

    rows: tuple[Axis, ...]
    column: Axis
    window: tuple[Axis, ...]
    steps: tuple[Expr, ...]
    left: Any
    place: Expr
    weights: Any
    depth: int
    width: int
    anchored: Anchored

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return as_int(self.column.extent) or 0

    @property
    def half(self) -> int:
        """Pairs at one place of the window."""
        return -(-self.depth // 2)

    @property
    def length(self) -> int:
        """Pairs of a row."""
        return self.half * prod(as_int(axis.extent) or 1 for axis in self.window)

    @property
    def panels(self) -> int:
        """Panels of the right side."""
        return -(-self.columns // self.width)


def read_pairs(program: Program) -> Pairs | None:
    """The program as `compiler.passes.pack_integer` writes it, with whatever was fused behind it; None for another."""
    if program.stages[0].name != STAGE:
        return None
    anchored = read_anchored(program)
    combine = None if anchored is None else combine_of(anchored.anchor)
    if anchored is None or combine is None or not isinstance(combine.term.a, tvm.ir.TensorLoad):
        return None
    *rows, column = anchored.anchor.spatial
    *window, along = anchored.anchor.reduced
    outputs = [value for part in anchored.parts for value in (part.value, load(part.buffer, list(part.indices)))]
    if not all(vectorizable(value, column.var) for value in outputs):
        return None
    left, weights = combine.term.a, combine.term.b.value.source
    depth, width = as_int(left.source.shape[-1]), as_int(weights.shape[2])
    assert depth is not None
    assert width is not None
    at = anchored.flat.offset(left.source, [substitute(index, {along.var: const(0)}) for index in left.indices], tvm.sym.Analyzer())
    steps = tuple(stride(at, axis.var) for axis in window)
    place = substitute(at, {axis.var: const(0) for axis in window})
    views = anchored.flat.views
    return Pairs(tuple(rows), column, tuple(window), steps, views[left.source], place, views[weights], depth, width, anchored)


def emit_pairs(pairs: Pairs, machine: Machine) -> Stmt:
    """The kernel, for a machine that has such an instruction."""
    extents = [axis.extent for axis in pairs.rows]

    def named(known: list[Expr], steps: list[Expr]) -> Stmt:
        if len(known) < len(extents):
            return bind_opaque("extent", extents[len(known)], lambda extent: named([*known, extent], steps))
        if len(steps) < len(pairs.steps):
            return bind_opaque("step", pairs.steps[len(steps)], lambda step: named(known, [*steps, step]))
        return bind_opaque("m", product(known), lambda m: _Kernel(pairs, machine, known, steps, m).emit())

    return seq(*pairs.anchored.flat.prelude, named([], []))


@dataclass(frozen=True)
class _Kernel:
    pairs: Pairs
    machine: Machine
    extents: list[Expr]
    steps: list[Expr]
    m: Expr

    @property
    def lanes(self) -> int:
        return self.machine.lanes(32)

    @property
    def rows(self) -> int:
        """Rows of a task."""
        return SIZES[-1] * TILES

    def emit(self) -> Stmt:
        """Tasks of some rows by some panels."""
        groups = -(-self.pairs.panels // PANELS)
        total = tirx.ceildiv(self.m, const(self.rows)) * const(groups)
        work = self.m * const(2 * self.pairs.length * self.pairs.columns)

        def task(t: Expr) -> Stmt:
            return self._task(t // const(groups) * const(self.rows), t % const(groups) * const(PANELS))

        return when(tvm.sym.Analyzer().simplify(work >= const(PARALLEL_FLOPS)), parallel(total, task), serial(total, task))

    def _task(self, first: Expr, panel: Expr) -> Stmt:
        length, width = self.pairs.length, self.pairs.width
        left, made = allocate([self.rows * length], "int32", "left", "global")
        sums, more = allocate([self.rows * PANELS * width], "float32", "sums", "global")
        count = tirx.min(const(self.rows), self.m - first)
        panels = const(PANELS) if self.pairs.panels % PANELS == 0 else tirx.min(const(PANELS), const(self.pairs.panels) - panel)

        def tiles(p: Expr) -> Stmt:
            tallest = const(SIZES[-1])
            return serial(tirx.ceildiv(count, tallest), lambda t: self._sized(left, sums, t * tallest, count, panel + p, p), "tile")

        def gathered(at: Table, r: Expr) -> Stmt:
            place = substitute(self.pairs.place, at)
            return self._window(
                lambda position, moved: self._pack(left, place + moved, r * const(length) + position * const(self.pairs.half))
            )

        gather = serial(count, lambda r: self._at(first + r, lambda at: gathered(at, r)), "row")
        return seq(made, more, gather, serial(panels, tiles, "panel"), self._finish(sums, first, count, panel, panels))

    def _at(self, row: Expr, body: Callable[[Table], Stmt]) -> Stmt:
        return bind_all([axis.var for axis in self.pairs.rows], unfuse(row, self.extents), body)

    def _window(self, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """body(position in the window, how far that is from its first element), for all of them."""

        def along(index: int, position: Expr, moved: Expr) -> Stmt:
            if index == len(self.pairs.window):
                return body(position, moved)
            axis = self.pairs.window[index]
            return serial(axis.extent, lambda k: along(index + 1, position * axis.extent + k, moved + k * self.steps[index]), axis.var.name)

        return along(0, const(0), const(0))

    def _pack(self, left: Any, place: Expr, to: Expr) -> Stmt:
        """The elements at `place` as pairs: the first half in the low bits, the second in the high ones."""
        half = const(self.pairs.half)

        def part(index: Expr) -> Expr:
            return load(self.pairs.left, [place + index]).astype("int32")

        def low(k: Expr) -> Expr:
            return tirx.bitwise_and(part(k), tirx.const(0xFFFF, "int32"))

        def both(k: Expr) -> Stmt:
            high = tirx.shift_left(part(half + k), tirx.const(16, "int32"))
            return store(left, tirx.bitwise_or(low(k), high), to + k)

        full = self.pairs.depth - self.pairs.half
        last = store(left, low(const(full)), to + const(full)) if full < self.pairs.half else None
        return seq(strips(const(full), self.lanes, both), last)

    def _sized(self, left: Any, sums: Any, row: Expr, count: Expr, panel: Expr, p: Expr) -> Stmt:
        """A tile of the least height that holds the rows left."""
        body = self._tile(SIZES[-1], left, sums, row, panel, p)
        for size in SIZES[-2::-1]:
            body = when(count - row <= const(size), self._tile(size, left, sums, row, panel, p), body)
        return body

    def _tile(self, rows: int, left: Any, sums: Any, row: Expr, panel: Expr, p: Expr) -> Stmt:
        length, width, lanes = self.pairs.length, self.pairs.width, self.lanes
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

        zero = prim.Broadcast(tirx.const(0, "int32"), lanes)
        clear = [tirx.BufferStore(acc, zero, [place(*part)]) for part in parts]
        return seq(allocation, *clear, serial(length, step, "k"), *(keep(*part) for part in parts))

    def _multiplied(self, total: Expr, given: Expr, weights: Expr) -> Expr:
        """The total and the products of the pairs."""
        name = self.machine.pair_product
        assert name is not None
        halves = tirx.reinterpret(f"int16x{2 * self.lanes}", given)
        return total + tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", name, halves, weights)

    def _finish(self, sums: Any, first: Expr, count: Expr, panel: Expr, panels: Expr) -> Stmt:
        """What was fused behind the product, row by row."""
        width = self.pairs.width

        def line(at: Table, row: Expr, p: Expr, columns: int) -> Stmt:
            start = (row * const(PANELS) + p) * const(width)
            column = (panel + p) * const(width)
            return strips(
                const(columns), self.lanes, lambda j: self._write(load(sums, [start + j]), {**at, self.pairs.column.var: column + j})
            )

        def one(at: Table, row: Expr, p: Expr) -> Stmt:
            rest = self.pairs.columns % width
            full = line(at, row, p, width)
            return when(panel + p < const(self.pairs.panels - 1), full, line(at, row, p, rest)) if rest else full

        return serial(count, lambda r: self._at(first + r, lambda at: serial(panels, lambda p: one(at, r, p), "panel")), "row")

    def _write(self, total: Expr, at: Table) -> Stmt:
        def visit(node: Expr) -> Expr | None:
            if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(self.pairs.anchored.total):
                return total
            return at.get(node) if isinstance(node, tvm.ir.Var) else None

        parts = self.pairs.anchored.parts
        return seq(*(store(part.buffer, rewrite(part.value, visit), substitute(part.indices[0], at)) for part in parts))
