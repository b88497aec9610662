"""The kernel of matmuls whose two sides are both computed at run time.

Loop order: batch and strips of a few rows over the threads; in a strip, blocks of columns; in a
block, the depth. Registers hold the accumulators of a block, one vector or two of each row. The
right side is read where it lies, once for each strip, so it has to stay in the cache.

Rows and columns past the end are clamped into the last whole block, which computes some results
twice and needs no masks.
"""

from collections.abc import Iterator

import tvm
from tvm import tirx

from compiler.passes.cpu.families.matmul.match import Contraction
from compiler.passes.cpu.shared.register_tile import register_tile
from compiler.passes.cpu.shared.sharing import extents_of, place_of, share_places
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    fresh,
    let_opaque,
    nest,
    otherwise,
    serial,
    statements,
    steps,
    store,
    tile,
    when,
)
from compiler.tir.exprs import Expr, Table, as_int, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, product

MOST_ROWS = 4
"""Rows of a strip at most: each row reads its own elements of the left side, unpacked."""


def emit_matmul_dynamic(contraction: Contraction, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each a strip of rows of one matrix of the batch."""
    height, width = _block_size(unit)
    with statements() as body:
        for stmt in contraction.prelude:
            emit(stmt)
        m = let_opaque("m", product(extents_of(contraction.rows)))
        if height <= MOST_ROWS:
            _emit_strips(contraction, unit, m, height, width)
        else:
            # A few rows would be computed several times in high strips.
            with when(m <= MOST_ROWS):
                _emit_strips(contraction, unit, m, MOST_ROWS, width)
            with otherwise():
                _emit_strips(contraction, unit, m, height, width)
    return body.stmt


def _emit_strips(
    contraction: Contraction, unit: VectorUnit, m: Expr, height: int, width: int
) -> None:
    """All tasks, strips of `height` rows in blocks of at most `width` columns."""
    strips, worth = tirx.ceildiv(m, height), _worth_threads(contraction, m)
    # Strips of one matrix follow each other, while its right side is in the cache.
    for at, strip in share_places(contraction.batch, strips, worth):
        rows = [at | _row(contraction, strip * height + i, m, i) for i in range(height)]
        columns, lanes = contraction.column.extent, unit.lanes(32)
        # Eight columns are half of a vector of 512 bits.
        halves = () if lanes < 16 or as_int(columns) is None else (lanes // 2,)
        for first, size in _column_blocks(columns, (width, lanes, *halves)):
            _emit_block(contraction, unit, rows, first, size)


def describe_tile(contraction: Contraction, unit: VectorUnit) -> str:
    """The rows and columns of a block."""
    height, width = _block_size(unit)
    return f"{height}x{width}"


def _block_size(unit: VectorUnit) -> tuple[int, int]:
    height, width = register_tile(unit)
    # Four rows of two vectors are too few accumulators to hide the latency of loads from L2.
    return min(height, 2 * MOST_ROWS if unit.outruns_cache else MOST_ROWS), width


def _worth_threads(contraction: Contraction, m: Expr) -> Expr:
    depth = product(extents_of(contraction.reduce))
    work = product(extents_of(contraction.batch)) * m * contraction.column.extent * depth * 2
    return tvm.sym.Analyzer().simplify(work) >= PARALLEL_FLOPS


def _row(contraction: Contraction, index: Expr, m: Expr, i: int) -> Table:
    """The place of row number `index`, or of the last one past the end, as variables."""
    place = place_of(contraction.rows, tirx.min(index, m - 1))
    # The divisions in a place are done here, once, and not at every step of the depth.
    return {var: fresh(f"{var.name}_{i}", value) for var, value in place.items()}


def _column_blocks(extent: Expr, widths: tuple[int, ...]) -> Iterator[tuple[Expr, int]]:
    """(first column, width) of blocks of the greatest width that the columns fill, else of one.

    The last block is moved back until it ends with the columns.
    """
    if not widths:
        with serial(extent, "column") as column:
            yield column, 1
        return
    # Two vectors, one, or single columns: tested once, outside of the loop over the blocks.
    size, *smaller = widths
    with when(tvm.sym.Analyzer().simplify(extent >= size)):
        with serial(tirx.ceildiv(extent, size), "block") as block:
            yield tirx.min(block * size, extent - size), size
    with otherwise():
        yield from _column_blocks(extent, tuple(smaller))


def _emit_block(
    contraction: Contraction, unit: VectorUnit, rows: list[Table], first: Expr, size: int
) -> None:
    """All rows of the strip by `size` columns from `first` on, over the whole depth."""
    *outer, last = contraction.reduce
    acc = alloc([len(rows), size], "float32", "acc")
    for i, lane in tile(len(rows), size, size):
        store(acc, 0, i, lane)
    for place in nest(outer):
        for k in steps(last.extent, unit.together):
            at = {**place, last.var: k}
            for i, lane in tile(len(rows), size, size):
                column = {contraction.column.var: first + lane}
                left = substitute(contraction.left, {**rows[i], **at})
                # The right side does not depend on the row, so any row's place will do.
                right = substitute(contraction.right, {**rows[0], **column, **at})
                store(acc, load(acc, [i, lane]) + left * right, i, lane)
    for i, lane in tile(len(rows), size, size):
        column = {contraction.column.var: first + lane}
        contraction.epilogue.store(load(acc, [i, lane]), {**rows[i], **column})
