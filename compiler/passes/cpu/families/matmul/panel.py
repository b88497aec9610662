"""The micro-kernel of a matmul: a block of rows by one panel, over one pass of the depth.

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

from compiler.passes.cpu.families.matmul import plan
from compiler.passes.cpu.families.matmul.bfloat16 import emit_steps
from compiler.passes.cpu.families.matmul.match import Matmul
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
from compiler.tir.exprs import Expr, as_int, const, dtype_of, load, substitute


@dataclass(frozen=True)
class Block:
    """The part of a matmul that one task computes: `count` rows from `first` on, by the panels from
    `base` on.

    m: all rows of the matmul; results: scratch memory for the accumulators, [panel, row, column],
    flat; left: gathered rows, flat, or None where rows are read in place.
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

    def result_index(self, p: Expr, row: Expr) -> Expr:
        """The index in `results` of the first element of a row by panel `p` of the block."""
        tiling = self.matmul.tiling
        return (p * tiling.block_rows + row) * tiling.nr

    def row_start(self, row: Expr, i: int, start: Expr, clamped: bool) -> Expr:
        """The index of the left side of row `row + i` at depth `start`."""
        if self.left is not None:
            # Rows past the last one repeat it only where their results are stored.
            repeated = clamped and has_tile_epilogue(self.matmul, self.unit)
            row_index = tirx.min(row + i, self.count - 1) if repeated else row + i
            return row_index * self.matmul.tiling.kc
        contraction, index = self.matmul.contraction, self.first + row + i
        position = position_of(contraction.rows, tirx.min(index, self.m - 1) if clamped else index)
        begin = {**position, contraction.reduce[0].var: const(0)}
        return substitute(contraction.left.indices[0], begin) + start


def emit_panel(block: Block, p: Expr, start: Expr, length: Expr) -> None:
    """Emit all rows of the block by panel `p` of it, over `length` of the depth from `start` on."""
    matmul = block.matmul
    last = matmul.last_width(block.unit.lanes(32))
    if last == matmul.tiling.nr:
        _emit_columns(block, p, start, length)
        return
    last_panel = replace(block, width=last)
    if matmul.panel_count == 1:
        _emit_columns(last_panel, p, start, length)
        return
    with when(block.base + p < matmul.panel_count - 1):
        _emit_columns(block, p, start, length)
    with otherwise():
        _emit_columns(last_panel, p, start, length)


def _emit_columns(block: Block, p: Expr, start: Expr, length: Expr) -> None:
    """Emit all rows of the block by the columns of panel `p` that are computed."""
    mr = block.matmul.tiling.mr
    is_split = (
        block.matmul.is_bfloat16
        or _has_small_images(block.matmul)
        or has_tile_epilogue(block.matmul, block.unit)
    )
    if block.left is not None and not is_split:
        # The scratch memory has room for full tiles; results of rows past the last one are not
        # read.
        _emit_full_tiles(block, tirx.ceildiv(block.count, mr), p, start, length)
        return
    # Full tiles and the rest apart: the rows of a full tile are a fixed distance from each other,
    # which saves 60 instructions of addresses a tile, 1 to 2 % of MiniLM.
    full, rest = tirx.truncdiv(block.count, mr), tirx.truncmod(block.count, mr)
    _emit_full_tiles(block, full, p, start, length)
    if as_int(rest) != 0:
        _emit_rest(block, full * mr, rest, p, start, length)


def _has_small_images(matmul: Matmul) -> bool:
    """True if each image has no more positions than two tiles have rows."""
    extents = [as_int(extent) for extent in extents_of(matmul.contraction.rows)]
    known = [extent for extent in extents if extent is not None]
    is_small = bool(known) and prod(known) <= 2 * matmul.tiling.mr
    return matmul.contraction.bulk and len(extents) - len(known) <= 1 and is_small


def few_rows(matmul: Matmul, unit: VectorUnit) -> int:
    """The number of rows up to which a pass covers the whole depth."""
    return matmul.tiling.mr * (1 if unit.memory_bound else plan.FEW_TILES)


def _emit_full_tiles(block: Block, count: Expr, p: Expr, start: Expr, length: Expr) -> None:
    """Emit `count` full tiles, which prefetch the next panel if that is faster."""
    matmul, mr = block.matmul, block.matmul.tiling.mr
    if block.unit.memory_bound and not _stays_in_l2(block):
        if matmul.contraction.bulk or not matmul.in_place:
            _emit_prefetching(block, count, p, start, length, plan.PREFETCH_MANY)
            return
        with when(block.m <= plan.FEW_TILES * mr):
            _emit_prefetching(block, count, p, start, length, plan.PREFETCH_FEW)
        with otherwise():
            _emit_prefetching(block, count, p, start, length, plan.PREFETCH_MANY)
        return
    ahead = _prefetch_weights(block, p, start, block.unit.unroll)

    def between(group: Expr) -> None:
        with when(block.m <= few_rows(matmul, block.unit)):
            ahead(group)

    # Where each step is a group, the condition would be evaluated in the innermost loop.
    few = not matmul.contraction.bulk and block.left is None and block.unit.unroll > 1
    with serial(count, "tile") as index:
        if block.left is None:
            _prefetch_panel(block, p, start, index)
        _emit_micro_kernel(
            block, mr, index * mr, p, start, length, between=between if few else None
        )


def _prefetch_weights(block: Block, p: Expr, start: Expr, unroll: int) -> Callable[[Expr], None]:
    """A callback for `steps` of a tile that reads its panel from memory."""
    matmul, nr = block.matmul, block.matmul.tiling.nr
    first = ((block.base + p) * matmul.depth + start) * nr
    return prefetch_ahead(matmul.contraction.right.source, first, nr, unroll)


def _stays_in_l2(block: Block) -> bool:
    """True if the weights stay in L2 over all tasks, beside gathered rows: they need no
    prefetch.
    """
    weights = 4 * block.matmul.depth * block.matmul.columns
    return not block.matmul.in_place and weights <= block.unit.l2 // 2


def _emit_prefetching(
    block: Block, count: Expr, p: Expr, start: Expr, length: Expr, tiles: int
) -> None:
    """Emit `count` full tiles, `tiles` of which prefetch all of the next panel between their steps.

    A single tile reads its panel once, and prefetches its own reads.
    """
    matmul, tiling = block.matmul, block.matmul.tiling
    weights = matmul.contraction.right.source
    following = ((block.base + p + 1) * matmul.depth + start) * tiling.nr
    with serial(count, "tile") as index:
        prefetch_share = prefetch_between(
            block.unit, weights, following, tiling.nr, length, index, tiles
        )
        ahead = _prefetch_weights(block, p, start, block.unit.unroll)

        def between(group: Expr) -> None:
            if tiles > plan.PREFETCH_FEW:
                prefetch_share(group)
                return
            with when(block.count >= 2 * tiling.mr):
                prefetch_share(group)
            with otherwise():
                ahead(group)

        _emit_micro_kernel(block, tiling.mr, index * tiling.mr, p, start, length, between=between)


def _emit_rest(block: Block, first: Expr, rest: Expr, p: Expr, start: Expr, length: Expr) -> None:
    """Emit the `rest` rows from `first` on, fewer than a tile has."""
    mr = block.matmul.tiling.mr
    if block.matmul.contraction.bulk:
        # Each size of tile is code to compile. With many rows it does not matter that one tile
        # computes the last row several times; of 7x7 positions that was a seventh of the time.
        sizes, clamped = [-(-mr // 4), -(-mr // 2), mr], True
        if block.left is not None and not (
            block.matmul.is_bfloat16 or has_tile_epilogue(block.matmul, block.unit)
        ):
            # With 2 rows left, a tile of 6 rows would compute 4 unused ones.
            sizes, clamped = [*(rows for rows in (1, 2, 4, 8) if rows < mr), mr], False
        with when(rest > 0):
            for rows in least(sizes, rest):
                _emit_micro_kernel(block, rows, first, p, start, length, clamped=clamped)
        return
    if block.unit.memory_bound:
        # One tile, which repeats the last row: reading the weights again for each power of two
        # takes longer.
        sizes = [*(rows for rows in (1, 2, 4, 8) if rows < mr - 1), mr - 1]
        ahead = _prefetch_weights(block, p, start, 1)
        with when(rest > 0):
            for rows in least(sizes, rest):
                # The time of a single row is that of reading.
                between = ahead if rows > 1 else None
                _emit_micro_kernel(
                    block, rows, first, p, start, length, clamped=True, between=between
                )
        return
    ahead = _prefetch_weights(block, p, start, 1)
    # Up to four tiles rather than one for each row: a tile reads the panel once for all its rows.
    for rows in (8, 4, 2, 1):
        if rows < mr:
            before = tirx.truncdiv(rest, 2 * rows) * (2 * rows)
            with when(rest - before >= rows):
                _emit_micro_kernel(block, rows, first + before, p, start, length, between=ahead)


def _prefetch_panel(block: Block, p: Expr, start: Expr, index: Expr) -> None:
    """Emit prefetches of tile `index`'s share of the next panel.

    Past the last panel the addresses are beyond the weights, and the processor ignores them.
    """
    matmul, tiling = block.matmul, block.matmul.tiling
    panel = block.base + p + 1
    lines = -(-4 * tiling.kc * tiling.nr // LINE // tiling.tiles)
    begin = (panel * matmul.depth + start) * tiling.nr + index * (lines * LINE // 4)
    # Into L2 only. With few rows, `prefetch_ahead` follows the one stream of weights.
    with when(block.m > few_rows(matmul, block.unit)):
        with serial(lines) as line:
            prefetch(matmul.contraction.right.source, begin + line * (LINE // 4))


def _prefetch_results(block: Block, rows: int, row: Expr, p: Expr) -> None:
    """Emit prefetches of the memory of a tile's results where the depth is small: stores would wait
    for every line of a large image. Of bfloat16, also of what the epilogue reads beside them.
    """
    matmul, contraction, nr = block.matmul, block.matmul.contraction, block.matmul.tiling.nr
    is_bfloat16 = matmul.is_bfloat16 and has_tile_epilogue(matmul, block.unit)
    shallow = contraction.bulk and block.left is None and matmul.depth <= plan.PREFETCHED_DEPTH
    if not is_bfloat16 and not shallow:
        return
    column, epilogue = contraction.column.var, contraction.epilogue
    for i in range(rows):
        position = epilogue.rows_at(contraction.rows, block.first + row + i)
        begin = {**position, column: (block.base + p) * nr}
        if is_bfloat16:
            # Into L2: rows that are 4 KiB apart share the same few lines of L1.
            epilogue.prefetch(column, nr, begin, level=2)
            epilogue.prefetch_results(begin, nr, level=2)
        else:
            epilogue.prefetch_results(begin, nr)


def _emit_micro_kernel(
    block: Block,
    rows: int,
    row: Expr,
    p: Expr,
    start: Expr,
    length: Expr,
    clamped: bool = False,
    between: Callable[[Expr], None] | None = None,
) -> None:
    """Emit a tile of rows from `row` of the block on. clamped: rows past the last one repeat it;
    between: as in `steps`.
    """
    matmul, tiling = block.matmul, block.matmul.tiling
    nr, lanes = tiling.nr, block.unit.lanes(32)
    panel, begin = (block.base + p) * matmul.depth + start, block.result_index(p, row)
    weights = matmul.contraction.right.source
    left = matmul.contraction.left.source if block.left is None else block.left
    starts = [fresh(f"a{i}", block.row_start(row, i, start, clamped)) for i in range(rows)]
    _prefetch_results(block, rows, row, p)
    width = block.width or nr
    is_full = rows == tiling.mr and width % lanes == 0 and not clamped
    unroll = block.unit.unroll if is_full else 1
    multiple = gcd(matmul.depth, tiling.kc)
    if matmul.is_bfloat16:
        acc = alloc([rows * nr], "float32", "acc")
        for i, lane in tile(rows, nr, lanes):
            start_value = (
                load(block.results, [begin + i * nr + lane]) if matmul.has_several_passes else 0
            )
            store(acc, start_value, i * nr + lane)
        loop = length, unroll, multiple, between
        emit_steps(acc, block.unit, (left, starts), (weights, panel * nr), loop)
        if has_tile_epilogue(matmul, block.unit):
            _emit_outputs(block, acc, rows, row, p, clamped)
            return
        for i, lane in tile(rows, nr, lanes):
            store(block.results, load(acc, [i * nr + lane]), begin + i * nr + lane)
        return
    cells = partial(_cells, rows, width, lanes)
    acc = alloc([rows, nr], "float32", "acc")

    def results() -> Iterator[tuple[Expr, Expr]]:
        for i, lane in cells():
            yield load(acc, [i, lane]), begin + i * nr + lane

    for first, count in _chunks(block, length):
        for i, lane in cells():
            store(acc, 0, i, lane)
        # Unrolled by 4 on x86: for the 12 multiply-adds of a 6x16 tile that takes 22 instructions
        # rather than 28, and took one thread of Zen 3 from 70 to 83 GFLOP/s at a peak of 97; by 8
        # it was not faster. Tiles of other sizes are rare, and each step is code to compile. With
        # half a vector at the end of 13 rows, LLVM would spill when unrolled by 4, which is no
        # faster than by 1.
        ahead = _shift_groups(between, first, unroll)
        for step in steps(count, unroll, multiple, between=ahead):
            # LLVM loads each vector of the panel once for all rows. Read as operands of the
            # multiply-adds, one instruction fewer but three loads more, they made it 5 % slower.
            k = first + step
            for i, lane in cells():
                a, b = load(left, [starts[i] + k]), load(weights, [(panel + k) * nr + lane])
                b = b if dtype_of(b) == "float32" else b.astype("float32")
                store(acc, load(acc, [i, lane]) + a * b, i, lane)
        if not has_tile_epilogue(matmul, block.unit):
            add_chunk(block.results, start + first, results)
    if has_tile_epilogue(matmul, block.unit):
        _emit_outputs(block, acc, rows, row, p, clamped)


def _chunks(block: Block, length: Expr) -> Iterator[tuple[Expr, Expr]]:
    """(begin, length) of every chunk of a pass."""
    matmul = block.matmul
    chunk = chunk_length(matmul.tiling.kc, block.unit.unroll)
    # Few rows that are read in place have a single pass, with chunks as long as those of others.
    if chunk >= (matmul.depth if matmul.in_place else matmul.tiling.kc):
        yield const(0), length
        return
    yield from emit_chunks(length, chunk)


def _shift_groups(
    between: Callable[[Expr], None] | None, begin: Expr, unroll: int
) -> Callable[[Expr], None] | None:
    """Return `between` for a chunk that begins at step `begin` of a pass."""
    if between is None or as_int(begin) == 0:
        return between
    earlier = tirx.truncdiv(begin, const(unroll))
    return lambda group: between(earlier + group)


def has_tile_epilogue(matmul: Matmul, unit: VectorUnit) -> bool:
    """True if a tile applies the epilogue to its accumulators: in shallow convolutions, and with
    bfloat16, where convolutions took a third longer through scratch memory, MiniLM 2 %.
    """
    contraction = matmul.contraction
    shallow = contraction.bulk and matmul.depth <= plan.SHALLOW
    is_bfloat16 = matmul.is_bfloat16 and unit.registers >= 32
    vectors = contraction.epilogue.in_vectors(contraction.column.var)
    return not matmul.has_several_passes and (is_bfloat16 or shallow) and vectors


def _emit_outputs(block: Block, acc: Any, rows: int, row: Expr, p: Expr, clamped: bool) -> None:
    """Emit the outputs of a tile, without the padding of the last panel."""
    matmul, lanes = block.matmul, block.unit.lanes(32)
    contraction, nr, panel = matmul.contraction, matmul.tiling.nr, block.base + p
    for i in range(rows):
        index = block.first + row + i
        index = tirx.min(index, block.m - 1) if clamped else index
        position = contraction.epilogue.rows_at(contraction.rows, index)
        # Only the last panel has fewer columns.
        columns = (
            panel_columns(panel, matmul.columns, nr, lanes)
            if block.width is None
            else strips(matmul.columns % nr, lanes)
        )
        for lane in columns:
            here = {**position, contraction.column.var: panel * nr + lane}
            result = load(acc, [i * nr + lane] if matmul.is_bfloat16 else [i, lane])
            contraction.epilogue.store(result, here)


def _cells(rows: int, width: int, lanes: int) -> Iterator[tuple[int, Expr]]:
    """(row, lane) of every vector of a tile, row by row; the last of a row may be half of one."""
    full = width // lanes * lanes
    for row in range(rows):
        for lane in across(full, lanes):
            yield row, lane
        if width > full:
            with vectorize(width - full) as lane:
                yield row, full + lane
