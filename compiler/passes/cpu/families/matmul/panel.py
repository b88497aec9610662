"""The inner loops of a matmul: a block of rows by one panel, over one pass of the depth.

Loop order: tiles of MR rows; in a tile, the depth. Registers hold the MR x NR accumulators, NR
columns of one row of the panel, and one element of the left side. The panel's part of the pass
stays in L1 from tile to tile; the results of the block are in L2 between passes.

Rows are never masked, so the innermost loop has no branch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, prod
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.matmul.match import Matmul
from compiler.passes.cpu.families.matmul.pairs import emit_steps
from compiler.passes.cpu.shared.chunks import add_chunk, chunk_length, emit_chunks
from compiler.passes.cpu.shared.prefetching import prefetch_ahead, prefetch_between
from compiler.passes.cpu.shared.register_tile import least, panel_columns
from compiler.passes.cpu.shared.sharing import extents_of, position_of
from compiler.targets.vector_unit import LINE, VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    fresh,
    otherwise,
    prefetch,
    serial,
    steps,
    store,
    strips,
    tile,
    vectorize,
    when,
)
from compiler.tir.exprs import Expr, as_int, const, load, substitute

FEW_TILES = 4
"""Up to this many tiles of rows the weights are hardly reused, and are best read in one stream, the
whole depth in one pass: where the next panel is prefetched between the steps, up to one tile.
"""

FETCH_FEW = 2
"""Tiles that prefetch the whole of the next panel, where there are no more than FEW_TILES."""

FETCH_MANY = 6
"""Tiles that prefetch the whole of the next panel elsewhere: two lines between groups of steps.
With 16 tiles and one line, 48 rows took 15 % longer on Sapphire Rapids.
"""

FETCHED = 32
"""Depth up to which lines of the outputs are prefetched: 16 channels to 96 at 112x112 took 0.8 of
the time; from 64 channels on it cost 1 to 5 %.
"""

SHALLOW = 128
"""Depth up to which a tile of a convolution writes its outputs itself: at 16 channels that took
0.67 of the time, at 40 to 128 0.81 to 0.95. Where sums are longer it gained nothing.
"""


@dataclass(frozen=True)
class Block:
    """The part of a matmul that one task computes: `count` rows from `first` on, by the panels from
    `base` on.

    m: all rows of the matmul; results: scratch memory for the sums over the depth, [panel, row,
    column], flat; left: gathered rows, flat, or None where rows are read in place.
    """

    matmul: Matmul
    unit: VectorUnit
    m: Expr
    first: Expr
    count: Expr
    base: Expr
    results: Any
    left: Any
    width: int | None = None

    def place(self, p: Expr, row: Expr) -> Expr:
        """Where in `results` the row by panel `p` of the block begins."""
        tiling = self.matmul.tiling
        return (p * tiling.block_rows + row) * tiling.nr

    def row_start(self, row: Expr, i: int, start: Expr, clamped: bool) -> Expr:
        """Where in memory the left side of row `row + i` begins, at depth `start`."""
        if self.left is not None:
            # Rows past the last one are only computed twice where their results are stored.
            twice = clamped and at_once(self.matmul, self.unit)
            inside = tirx.min(row + i, self.count - 1) if twice else row + i
            return inside * self.matmul.tiling.kc
        contraction, index = self.matmul.contraction, self.first + row + i
        place = position_of(contraction.rows, tirx.min(index, self.m - 1) if clamped else index)
        at = {**place, contraction.reduce[0].var: const(0)}
        return substitute(contraction.left.indices[0], at) + start


def emit_panel(block: Block, p: Expr, start: Expr, length: Expr) -> None:
    """All rows of the block by panel `p` of it, over `length` of the depth from `start` on."""
    matmul = block.matmul
    last = matmul.last_width(block.unit.lanes(32))
    if last == matmul.tiling.nr:
        _emit_columns(block, p, start, length)
        return
    narrow = replace(block, width=last)
    if matmul.panel_count == 1:
        _emit_columns(narrow, p, start, length)
        return
    with when(block.base + p < matmul.panel_count - 1):
        _emit_columns(block, p, start, length)
    with otherwise():
        _emit_columns(narrow, p, start, length)


def _emit_columns(block: Block, p: Expr, start: Expr, length: Expr) -> None:
    """All rows of the block by the columns of panel `p` that are computed."""
    mr = block.matmul.tiling.mr
    apart = (
        block.matmul.paired or _has_few_places(block.matmul) or at_once(block.matmul, block.unit)
    )
    if block.left is not None and not apart:
        # The scratch memory has room for whole tiles; results of rows past the last one are never
        # read.
        _emit_whole(block, tirx.ceildiv(block.count, mr), p, start, length)
        return
    # Whole tiles and the rest apart: the rows of a whole tile are a fixed distance from each other,
    # which saves 60 instructions of addresses a tile, 1 to 2 % of MiniLM.
    whole, rest = tirx.truncdiv(block.count, mr), tirx.truncmod(block.count, mr)
    _emit_whole(block, whole, p, start, length)
    if as_int(rest) != 0:
        _emit_rest(block, whole * mr, rest, p, start, length)


def _has_few_places(matmul: Matmul) -> bool:
    """Whether images have no more places than two tiles have rows, however many images there
    are.
    """
    extents = [as_int(extent) for extent in extents_of(matmul.contraction.rows)]
    known = [extent for extent in extents if extent is not None]
    few = bool(known) and prod(known) <= 2 * matmul.tiling.mr
    return matmul.contraction.bulk and len(extents) - len(known) <= 1 and few


def few_rows(matmul: Matmul, unit: VectorUnit) -> int:
    """Rows up to which a pass covers the whole depth."""
    return matmul.tiling.mr * (1 if unit.memory_bound else FEW_TILES)


def _emit_whole(block: Block, count: Expr, p: Expr, start: Expr, length: Expr) -> None:
    """`count` whole tiles, which prefetch the next panel if that pays."""
    matmul, mr = block.matmul, block.matmul.tiling.mr
    if block.unit.memory_bound and not _stays_in_l2(block):
        if matmul.contraction.bulk or not matmul.in_place:
            _emit_fetching(block, count, p, start, length, FETCH_MANY)
            return
        with when(block.m <= FEW_TILES * mr):
            _emit_fetching(block, count, p, start, length, FETCH_FEW)
        with otherwise():
            _emit_fetching(block, count, p, start, length, FETCH_MANY)
        return
    ahead = _ahead(block, p, start, block.unit.unroll)

    def between(group: Expr) -> None:
        with when(block.m <= few_rows(matmul, block.unit)):
            ahead(group)

    # Where each step is a group, the question would be asked in the innermost loop.
    few = not matmul.contraction.bulk and block.left is None and block.unit.unroll > 1
    with serial(count, "tile") as index:
        if block.left is None:
            _fetch_next(block, p, start, index)
        _emit_tile(block, mr, index * mr, p, start, length, between=between if few else None)


def _ahead(block: Block, p: Expr, start: Expr, together: int) -> Callable[[Expr], None]:
    """What a tile does before each group of steps, where it reads its panel from memory."""
    matmul, nr = block.matmul, block.matmul.tiling.nr
    first = ((block.base + p) * matmul.depth + start) * nr
    return prefetch_ahead(matmul.contraction.right.source, first, nr, together)


def _stays_in_l2(block: Block) -> bool:
    """Whether the weights stay in L2 over all tasks, beside gathered rows, and need no prefetch."""
    weights = 4 * block.matmul.depth * block.matmul.columns
    return not block.matmul.in_place and weights <= block.unit.l2 // 2


def _emit_fetching(
    block: Block, count: Expr, p: Expr, start: Expr, length: Expr, tiles: int
) -> None:
    """`count` whole tiles, `tiles` of which prefetch all of the next panel between their steps.

    A single tile reads its panel once, and prefetches what it reads itself.
    """
    matmul, tiling = block.matmul, block.matmul.tiling
    weights = matmul.contraction.right.source
    following = ((block.base + p + 1) * matmul.depth + start) * tiling.nr
    with serial(count, "tile") as index:
        fetch = prefetch_between(block.unit, weights, following, tiling.nr, length, index, tiles)
        ahead = _ahead(block, p, start, block.unit.unroll)

        def between(group: Expr) -> None:
            if tiles > FETCH_FEW:
                fetch(group)
                return
            with when(block.count >= 2 * tiling.mr):
                fetch(group)
            with otherwise():
                ahead(group)

        _emit_tile(block, tiling.mr, index * tiling.mr, p, start, length, between=between)


def _emit_rest(block: Block, first: Expr, rest: Expr, p: Expr, start: Expr, length: Expr) -> None:
    """The `rest` rows from `first` on, fewer than a tile has."""
    mr = block.matmul.tiling.mr
    if block.matmul.contraction.bulk:
        # Each size of tile is code to compile. Where rows are many it does not matter that one tile
        # computes the last row several times; of 7x7 places that was a seventh of the time.
        sizes, clamped = [-(-mr // 4), -(-mr // 2), mr], True
        if block.left is not None and not (
            block.matmul.paired or at_once(block.matmul, block.unit)
        ):
            # Of a sound's last two places a tile of six computed four that nobody wants.
            sizes, clamped = [*(rows for rows in (1, 2, 4, 8) if rows < mr), mr], False
        with when(rest > 0):
            for rows in least(sizes, rest):
                _emit_tile(block, rows, first, p, start, length, clamped=clamped)
        return
    if block.unit.memory_bound:
        # One tile, with rows computed twice: reading the weights again for each power of two takes
        # longer there.
        sizes = [*(rows for rows in (1, 2, 4, 8) if rows < mr - 1), mr - 1]
        ahead = _ahead(block, p, start, 1)
        with when(rest > 0):
            for rows in least(sizes, rest):
                # A single row takes no longer than reading does.
                between = ahead if rows > 1 else None
                _emit_tile(block, rows, first, p, start, length, clamped=True, between=between)
        return
    ahead = _ahead(block, p, start, 1)
    # Up to four tiles in place of one for each row: a tile reads the panel once for all its rows.
    for rows in (8, 4, 2, 1):
        if rows < mr:
            before = tirx.truncdiv(rest, 2 * rows) * (2 * rows)
            with when(rest - before >= rows):
                _emit_tile(block, rows, first + before, p, start, length, between=ahead)


def _fetch_next(block: Block, p: Expr, start: Expr, index: Expr) -> None:
    """Ask for tile `index`'s share of the next panel, so that the last tile has asked for all.

    Past the last panel the addresses are beyond the weights, and the processor ignores them.
    """
    matmul, tiling = block.matmul, block.matmul.tiling
    panel = block.base + p + 1
    lines = -(-4 * tiling.kc * tiling.nr // LINE // tiling.tiles)
    place = (panel * matmul.depth + start) * tiling.nr + index * (lines * LINE // 4)
    # Into L2 only. With few rows the weights are read as one stream, as far ahead as it pays.
    with when(block.m > few_rows(matmul, block.unit)):
        with serial(lines) as line:
            prefetch(matmul.contraction.right.source, place + line * (LINE // 4))


def _fetch_results(block: Block, rows: int, row: Expr, p: Expr) -> None:
    """Ask for where the results of a tile go, if they are many for the work on them: they would
    wait for every line of a large image. Of pairs, also for what the outputs read beside them.
    """
    matmul, contraction, nr = block.matmul, block.matmul.contraction, block.matmul.tiling.nr
    paired = matmul.paired and at_once(matmul, block.unit)
    shallow = contraction.bulk and block.left is None and matmul.depth <= FETCHED
    if not paired and not shallow:
        return
    column, epilogue = contraction.column.var, contraction.epilogue
    for i in range(rows):
        at = epilogue.rows_at(contraction.rows, block.first + row + i)
        place = {**at, column: (block.base + p) * nr}
        if paired:
            # Into L2: rows that lie 4 KiB apart have the same few places in L1.
            epilogue.prefetch(column, nr, place, level=2)
            epilogue.prefetch_results(place, nr, level=2)
        else:
            epilogue.prefetch_results(place, nr)


def _emit_tile(
    block: Block,
    rows: int,
    row: Expr,
    p: Expr,
    start: Expr,
    length: Expr,
    clamped: bool = False,
    between: Callable[[Expr], None] | None = None,
) -> None:
    """A tile of rows from `row` of the block on; clamped: rows past the last one repeat it;
    between: see `steps`.
    """
    matmul, tiling = block.matmul, block.matmul.tiling
    nr, lanes = tiling.nr, block.unit.lanes(32)
    panel, place = (block.base + p) * matmul.depth + start, block.place(p, row)
    weights = matmul.contraction.right.source
    left = matmul.contraction.left.source if block.left is None else block.left
    starts = [fresh(f"a{i}", block.row_start(row, i, start, clamped)) for i in range(rows)]
    _fetch_results(block, rows, row, p)
    width = block.width or nr
    several = rows == tiling.mr and width % lanes == 0 and not clamped
    together = block.unit.unroll if several else 1
    multiple = gcd(matmul.depth, tiling.kc)
    if matmul.paired:
        acc = alloc([rows * nr], "float32", "acc")
        for i, lane in tile(rows, nr, lanes):
            before = load(block.results, [place + i * nr + lane]) if matmul.several else 0
            store(acc, before, i * nr + lane)
        loop = length, together, multiple, between
        emit_steps(acc, block.unit, (left, starts), (weights, panel * nr), loop)
        if at_once(matmul, block.unit):
            _emit_outputs(block, acc, rows, row, p, clamped)
            return
        for i, lane in tile(rows, nr, lanes):
            store(block.results, load(acc, [i * nr + lane]), place + i * nr + lane)
        return
    cells = partial(_cells, rows, width, lanes)
    acc = alloc([rows, nr], "float32", "acc")

    def results() -> Iterator[tuple[Expr, Expr]]:
        for i, lane in cells():
            yield load(acc, [i, lane]), place + i * nr + lane

    for begin, count in _chunks(block, length):
        for i, lane in cells():
            store(acc, 0, i, lane)
        # Four steps in a row on x86: of a 6x16 tile that leaves 22 instructions for 12
        # multiply-adds in place of 28, and took one thread of Zen 3 from 70 to 83 GFLOP/s at a peak
        # of 97; eight steps gave no more. Tiles of other sizes are rare, and each step is code to
        # compile. With half a vector at the end of 13 rows, LLVM would spill in four steps, which
        # are no faster than one.
        ahead = _from_group(between, begin, together)
        for step in steps(count, together, multiple, between=ahead):
            # LLVM loads each vector of the panel once for all rows. Read as operands of the
            # multiply-adds, one instruction fewer but three loads more, they made it 5 % slower.
            k = begin + step
            for i, lane in cells():
                a, b = load(left, [starts[i] + k]), load(weights, [(panel + k) * nr + lane])
                store(acc, load(acc, [i, lane]) + a * b, i, lane)
        if not at_once(matmul, block.unit):
            add_chunk(block.results, start + begin, results)
    if at_once(matmul, block.unit):
        _emit_outputs(block, acc, rows, row, p, clamped)


def _chunks(block: Block, length: Expr) -> Iterator[tuple[Expr, Expr]]:
    """(begin, length) of every chunk of a pass."""
    matmul = block.matmul
    chunk = chunk_length(matmul.tiling.kc, block.unit.unroll)
    # Few rows that are read in place have a single pass, by chunks of the length that others have.
    if chunk >= (matmul.depth if matmul.in_place else matmul.tiling.kc):
        yield const(0), length
        return
    yield from emit_chunks(length, chunk)


def _from_group(
    between: Callable[[Expr], None] | None, begin: Expr, together: int
) -> Callable[[Expr], None] | None:
    """Return `between` for a chunk that begins at step `begin` of a pass."""
    if between is None or as_int(begin) == 0:
        return between
    earlier = tirx.truncdiv(begin, const(together))
    return lambda group: between(earlier + group)


def at_once(matmul: Matmul, unit: VectorUnit) -> bool:
    """Whether a tile turns its accumulators into the outputs itself, as those of shallow
    convolutions do, and all those of pairs: by way of scratch memory convolutions of pairs took a
    third longer, MiniLM 2 %.
    """
    contraction = matmul.contraction
    shallow = contraction.bulk and matmul.depth <= SHALLOW
    paired = matmul.paired and unit.registers >= 32
    vectors = contraction.epilogue.in_vectors(contraction.column.var)
    return not matmul.several and (paired or shallow) and vectors


def _emit_outputs(block: Block, acc: Any, rows: int, row: Expr, p: Expr, clamped: bool) -> None:
    """The outputs of a tile, without the empty columns of the last panel."""
    matmul, lanes = block.matmul, block.unit.lanes(32)
    contraction, nr, panel = matmul.contraction, matmul.tiling.nr, block.base + p
    for i in range(rows):
        index = block.first + row + i
        index = tirx.min(index, block.m - 1) if clamped else index
        at = contraction.epilogue.rows_at(contraction.rows, index)
        # Only the last panel is computed in part.
        columns = (
            panel_columns(panel, matmul.columns, nr, lanes)
            if block.width is None
            else strips(matmul.columns % nr, lanes)
        )
        for lane in columns:
            here = {**at, contraction.column.var: panel * nr + lane}
            result = load(acc, [i * nr + lane] if matmul.paired else [i, lane])
            contraction.epilogue.store(result, here)


def _cells(rows: int, width: int, lanes: int) -> Iterator[tuple[int, Expr]]:
    """(row, lane) for every place of a tile, row by row, in vectors and, if needed, half of one."""
    whole = width // lanes * lanes
    for row in range(rows):
        for lane in across(whole, lanes):
            yield row, lane
        if width > whole:
            with vectorize(width - whole) as lane:
                yield row, whole + lane
