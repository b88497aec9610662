"""The contraction kernel: MR x NR sums in registers, panels of the right side, blocks of rows,
extents symbolic.

Rows are never predicated, so the innermost loop has no branch. Each task computes a block of rows
by a group of panels into scratch memory, then applies the epilogue to it in one pass. While it
works on a panel it asks for the next.
"""

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.cpu.families.matmul.gather import gather_rows, inner_run
from compiler.passes.cpu.families.matmul.match import Contraction, packed_width
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.passes.cpu.shared.register_tile import (
    across,
    along,
    in_panel,
    panel_widths,
    products,
    rows_for,
)
from compiler.passes.cpu.shared.sharing import extents_of, place_of, with_extents
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, Table, as_int, const, either, load, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import (
    PARALLEL_FLOPS,
    Stmt,
    allocate,
    bind,
    bind_all,
    bind_each,
    bind_opaque,
    prefetch,
    product,
    seq,
    serial,
    share_out,
    some_of,
    store,
    when,
)
from compiler.tir.stages import Axis

LINE = 64
"""Bytes of a line of the cache; where lines are longer some are asked for twice."""
FEW_TILES = 4
"""Up to so many tiles of rows, weights are hardly used again and best read in one stream, all of
their depth at once.
"""


@dataclass(frozen=True)
class Tiling:
    """mr x nr is the register tile; a task takes up to `tiles` of them in rows and `panels` in
    columns; kc is the depth of one pass.
    """

    mr: int
    nr: int
    tiles: int
    panels: int
    kc: int

    @property
    def block_rows(self) -> int:
        """Rows of a task."""
        return self.mr * self.tiles


def tiling_for(unit: VectorUnit, width: int, depth: int, run: int | None = None) -> Tiling:
    """A tiling for panels of `width` whose block of rows stays in L2; with a `run` rows are
    gathered and passes are multiples of it.

    Where rows are read as they lie, a pass by one panel takes up to five eighths of L1: the rest is
    for rows and sums.
    """
    mr, nr = rows_for(unit, width // unit.lanes(32)), width
    multiple = run or unit.together
    passes = max(-(-depth // (2048 if run else unit.l1 * 5 // 8 // (4 * nr))), 1)
    kc = -(-depth // multiple // passes) * multiple
    tiles = min(max(unit.l2 // 2 // (4 * kc) // mr, 2), 8 if run else 16)
    panels = 8 if run else 2 if 4 * mr * tiles * depth <= unit.l2 // 2 else 4
    return Tiling(mr, nr, tiles, panels, kc)


def emit_contraction(contraction: Contraction, unit: VectorUnit) -> Stmt | None:
    """The kernel, None where the contraction has a form that this family does not take."""
    width, depth = packed_width(contraction), contraction.depth
    columns = as_int(contraction.column.extent)
    if (
        width is None
        or depth is None
        or columns is None
        or contraction.batch
        or width not in panel_widths(unit)
    ):
        return None
    if as_int(contraction.init) != 0 and float(getattr(contraction.init, "value", 1)) != 0.0:
        return None
    direct = _is_direct(contraction)
    if columns <= width and _better_in_place(contraction, columns, unit.lanes(32), direct):
        return None
    tiling = tiling_for(unit, width, depth, None if direct else inner_run(contraction))

    def kernel(rows: tuple[Axis, ...]) -> Stmt:
        known = replace(contraction, rows=rows)
        return bind_opaque(
            "m",
            product(extents_of(rows)),
            lambda m: _Kernel(known, tiling, unit, direct, depth, columns, m).emit(),
        )

    return seq(*contraction.prelude, with_extents(contraction.rows, kernel))


def _better_in_place(contraction: Contraction, columns: int, lanes: int, direct: bool) -> bool:
    """Whether products with a single panel need no scratch memory: of rows read without a
    condition, or of whole vectors.
    """
    return isinstance(contraction.left, tvm.ir.TensorLoad) and (
        not direct or columns in (lanes, 2 * lanes)
    )


def _is_direct(contraction: Contraction) -> bool:
    if not isinstance(contraction.left, tvm.ir.TensorLoad) or len(contraction.reduce) != 1:
        return False
    return as_int(stride(contraction.left.indices[0], contraction.reduce[0].var)) == 1


@dataclass(frozen=True)
class _Block:
    """`count` rows from `first` on by the panels from `base` on; scratch memory for their sums and,
    if it is gathered, the left side.
    """

    first: Expr
    count: Expr
    base: Expr
    sums: Any
    left: Any


@dataclass(frozen=True)
class _Kernel:
    contraction: Contraction
    tiling: Tiling
    unit: VectorUnit
    direct: bool
    depth: int
    columns: int
    m: Expr

    @property
    def panel_count(self) -> int:
        return -(-self.columns // self.tiling.nr)

    @property
    def several(self) -> bool:
        """Whether there are several passes over the depth."""
        return self.tiling.kc < self.depth

    def emit(self) -> Stmt:
        """Tasks over blocks of rows and groups of panels, on one thread where there is little to
        do.

        From two blocks on each thread has rows of its own, the same from one kernel to the next; of
        fewer it reads its part of the weights.
        """
        tiling = self.tiling
        tiles = tirx.ceildiv(self.m, const(tiling.mr))
        blocks = tirx.ceildiv(tiles, const(tiling.tiles))
        groups = -(-self.panel_count // tiling.panels)

        def with_blocks(blocks: Expr, each: Expr) -> Stmt:
            rows_outside = self.m >= const(2 * tiling.block_rows)

            def task(t: Expr) -> Stmt:
                def split(inside: Expr) -> Stmt:
                    far, near = tirx.truncdiv(t, inside), tirx.truncmod(t, inside)
                    return self._task(
                        either(rows_outside, far, near), either(rows_outside, near, far), each
                    )

                return bind("inside", either(rows_outside, const(groups), blocks), split)

            return share_out(blocks * const(groups), self._worth_threads(), task)

        def with_count(blocks: Expr) -> Stmt:
            # In a loop over blocks TVM knows that there is one, drops the maximum, and computes
            # that quotient ahead of the loop.
            return bind_opaque(
                "each",
                tirx.ceildiv(tiles, tirx.max(blocks, const(1))) * const(tiling.mr),
                lambda each: with_blocks(blocks, each),
            )

        return bind("blocks", blocks, with_count)

    def _task(self, block: Expr, group: Expr, each: Expr) -> Stmt:
        def rows(first: Expr) -> Stmt:
            return bind(
                "rows",
                tirx.min(each, self.m - first),
                lambda count: when(count > 0, self._group(first, count, group)),
            )

        return bind("first", block * each, rows)

    def _group(self, first: Expr, count: Expr, group: Expr) -> Stmt:
        """Panel by panel where the rows stay in the cache from one to the next, whose sums then do
        too.
        """
        most = self.tiling.panels
        base = group * const(most)
        panels = some_of(self.panel_count, most, base)
        if (
            self.several
            and self.direct
            and 4 * self.tiling.block_rows * self.depth <= self.unit.l2 // 2
        ):
            return serial(
                panels, lambda p: self._block(first, count, base + p, const(1), 1), "panel"
            )
        return self._block(first, count, base, panels, most)

    def _block(self, first: Expr, count: Expr, base: Expr, panels: Expr, most: int) -> Stmt:
        tiling = self.tiling
        sums, allocation = allocate(
            [most * tiling.block_rows * tiling.nr],
            "float32",
            "sums",
            "local" if most == 1 else "global",
        )
        left, more = (
            (None, None)
            if self.direct
            else allocate([tiling.block_rows * tiling.kc], "float32", "left", "global")
        )
        block = _Block(first, count, base, sums, left)

        def one_pass(index: Expr, step: Expr) -> Stmt:
            start = index * step
            length: Expr = (
                step if self.depth % tiling.kc == 0 else tirx.min(step, const(self.depth) - start)
            )
            gather = (
                None
                if left is None
                else gather_rows(
                    self.contraction, self.unit, left, tiling.kc, first, count, start, length
                )
            )
            return seq(
                gather, serial(panels, lambda p: self._panel(block, p, start, length), "panel")
            )

        def all_passes(step: Expr) -> Stmt:
            return serial(
                tirx.ceildiv(const(self.depth), step), lambda index: one_pass(index, step), "pass"
            )

        clear = (
            serial(
                panels, lambda p: self._clear(sums, p * const(tiling.block_rows), count), "panel"
            )
            if self.several
            else None
        )
        step: Expr = const(tiling.kc)
        if self.several and self.direct:
            step = tirx.Select(self.m <= const(FEW_TILES * tiling.mr), const(self.depth), step)
        return seq(
            allocation, more, clear, bind("step", step, all_passes), self._epilogue(block, panels)
        )

    def _clear(self, sums: Any, first: Expr, count: Expr) -> Stmt:
        """`count` rows; what tiles compute past them is not read."""
        nr, lanes = self.tiling.nr, self.unit.lanes(32)

        def row(i: Expr) -> Stmt:
            return across(
                nr,
                lanes,
                lambda lane: store(sums, tirx.const(0, "float32"), (first + i) * const(nr) + lane),
            )

        return serial(count, row, "row")

    def _worth_threads(self) -> Expr | bool:
        """Whether to share the tasks out; deciding at run time costs the code of both ways.

        Where several extents are open the rows are those of images, of which there are many.
        """
        extents = [as_int(extent) for extent in extents_of(self.contraction.rows)]
        known = (
            2 * self.depth * self.columns * prod(extent for extent in extents if extent is not None)
        )
        if known >= PARALLEL_FLOPS or None not in extents:
            return known >= PARALLEL_FLOPS
        many = (
            extents.count(None) > 1
            if self.contraction.bulk
            else self.depth * self.columns >= 1 << 17
        )
        return many or self.m * const(2 * self.depth * self.columns) >= const(PARALLEL_FLOPS)

    def _panel(self, block: _Block, p: Expr, start: Expr, length: Expr) -> Stmt:
        """All rows of the block by panel `p` of it, over `length` of the depth from `start` on.

        Rows that fill no tile are apart: addresses of whole tiles are a fixed distance from each
        other, 60 instructions less for each.
        """
        mr = self.tiling.mr

        def tile(index: Expr) -> Stmt:
            whole = self._tile(mr, block, index * const(mr), p, start, length)
            return seq(self._fetch(block.base + p + const(1), start, index), whole)

        if block.left is not None:  # There is room for rows that nobody reads.
            return serial(tirx.ceildiv(block.count, const(mr)), tile, "tile")
        whole, rest = tirx.truncdiv(block.count, const(mr)), tirx.truncmod(block.count, const(mr))
        return seq(
            serial(whole, tile, "tile"),
            *self._last(block, whole * const(mr), rest, p, start, length),
        )

    def _last(
        self, block: _Block, first: Expr, rest: Expr, p: Expr, start: Expr, length: Expr
    ) -> list[Stmt]:
        """The `rest` rows from `first` on, fewer than a tile has, in tiles of powers of two.

        Each size is code to compile: where rows are many it does not matter that one tile computes
        some in vain.
        """
        mr = self.tiling.mr
        if as_int(rest) == 0:
            return []
        if self.contraction.bulk:
            return [when(rest > 0, self._tile(mr, block, first, p, start, length, clamped=True))]

        def part(size: int) -> Stmt:
            before = tirx.truncdiv(rest, const(2 * size)) * const(2 * size)
            return when(
                rest - before >= size, self._tile(size, block, first + before, p, start, length)
            )

        return [part(size) for size in (8, 4, 2, 1) if size < mr]

    def _fetch(self, panel: Expr, start: Expr, index: Expr) -> Stmt | None:
        """Asks for tile `index`'s part of the panel that comes next; past the last one that is the
        processor's to ignore.
        """
        tiling = self.tiling
        several = self.m > const(FEW_TILES * tiling.mr)
        if not self.direct or as_int(several) == 0:
            return None
        lines = -(-4 * tiling.kc * tiling.nr // LINE // tiling.tiles)
        place = (panel * const(self.depth) + start) * const(tiling.nr) + index * const(
            lines * LINE // 4
        )
        return when(
            several,
            serial(
                lines,
                lambda line: prefetch(
                    self.contraction.right.source, place + line * const(LINE // 4)
                ),
            ),
        )

    def _tile(
        self,
        rows: int,
        block: _Block,
        row: Expr,
        p: Expr,
        start: Expr,
        length: Expr,
        clamped: bool = False,
    ) -> Stmt:
        """The innermost loops: `rows` x NR sums over one pass of the depth; `clamped`: there may be
        fewer rows.
        """
        tiling, nr, sums = self.tiling, self.tiling.nr, block.sums
        place = (p * const(tiling.block_rows) + row) * const(nr)
        panel = (block.base + p) * const(self.depth) + start
        left = self.contraction.left.source if block.left is None else block.left
        weights = self.contraction.right.source
        # Smaller tiles are few, and each is code to compile.
        together = self.unit.together if rows == tiling.mr and not clamped else 1

        def tile(bases: list[Any]) -> Stmt:
            return products(
                rows,
                nr,
                self.unit.lanes(32),
                along(length, together, gcd(self.depth, tiling.kc)),
                lambda i, k: load(left, [bases[i] + k]),
                lambda k, lane: load(weights, [(panel + k) * const(nr) + lane]),
                (lambda i, lane: load(sums, [place + const(i * nr) + lane]))
                if self.several
                else None,
                lambda i, lane, total: store(sums, total, place + const(i * nr) + lane),
            )

        return bind_each(
            "a", [self._base(block, row, const(i), start, clamped) for i in range(rows)], tile
        )

    def _base(self, block: _Block, row: Expr, i: Expr, start: Expr, clamped: bool) -> Expr:
        """Where the left side of row `row + i` of the block begins in memory."""
        if block.left is not None:
            return (row + i) * const(self.tiling.kc)
        index = block.first + row + i
        at = place_of(
            self.contraction.rows, tirx.min(index, self.m - const(1)) if clamped else index
        )
        return (
            substitute(
                self.contraction.left.indices[0], {**at, self.contraction.reduce[0].var: const(0)}
            )
            + start
        )

    def _epilogue(self, block: _Block, panels: Expr) -> Stmt:
        """Every output from the sums, row by row."""
        tiling, epilogue, column = (
            self.tiling,
            self.contraction.epilogue,
            self.contraction.column.var,
        )
        lanes = (
            self.unit.lanes(32)
            if all(vectorizable(out.value, column) for out in epilogue.outputs)
            else 1
        )

        def panel(p: Expr, row: Expr, at: Table) -> Stmt:
            place = (p * const(tiling.block_rows) + row) * const(tiling.nr)

            def point(lane: Expr) -> Stmt:
                return epilogue.write(
                    load(block.sums, [place + lane]),
                    {**at, column: (block.base + p) * const(tiling.nr) + lane},
                )

            return in_panel(block.base + p, self.columns, tiling.nr, lanes, point)

        def one_row(row: Expr) -> Stmt:
            place = place_of(self.contraction.rows, block.first + row)
            return bind_all(place, lambda at: serial(panels, lambda p: panel(p, row, at), "panel"))

        return serial(block.count, one_row, "row")
