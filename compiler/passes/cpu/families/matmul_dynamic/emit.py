"""The kernel of matmuls whose two sides are both computed at run time.

Loop order: batch and strips of a few rows over the threads; in a strip, blocks of columns; in a
block, the depth. Registers hold the accumulators of a block, one vector or two of each row. The
right side is read where it lies, once for each strip, so it has to stay in the cache.

Rows and columns past the end are clamped into the last whole block, which computes some results
twice and needs no masks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.cpu.families.matmul.match import Contraction
from compiler.passes.cpu.shared.chunks import (
    CHUNK,
    Positions,
    is_chunked,
    over_chunks,
    over_positions,
)
from compiler.passes.cpu.shared.register_tile import least, register_tile
from compiler.passes.cpu.shared.sharing import extents_of, position_of, share_positions
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    fresh,
    let,
    let_opaque,
    otherwise,
    serial,
    statements,
    store,
    tile,
    when,
)
from compiler.tir.exprs import Expr, Table, as_int, const, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, multiply_extents

MOST_ROWS = 4
"""Rows of a strip at most: each row reads its own elements of the left side, unpacked."""

SPARE = 8
"""Strips lie within the lines of an image if less than a place in so many is computed twice for
that: their places are a fixed distance apart, where each place of other strips takes divisions.
"""


def emit_matmul_dynamic(contraction: Contraction, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each a strip of rows of one matrix of the batch."""
    height, width = _block_size(unit)
    with statements() as body:
        for stmt in contraction.prelude:
            emit(stmt)
        m = let_opaque("m", multiply_extents(extents_of(contraction.rows)))
        with when(_in_lines(contraction, height)):
            for rows in _strips_of_lines(contraction, m, height):
                _emit_strip(contraction, unit, rows, width)
        with otherwise():
            # A few rows would be computed several times in high strips.
            for each in least([MOST_ROWS, height] if height > MOST_ROWS else [height], m):
                for rows in _strips(contraction, m, each):
                    _emit_strip(contraction, unit, rows, width)
    return body.stmt


def _in_lines(contraction: Contraction, height: int) -> Expr | bool:
    """Whether strips lie within the lines of an image."""
    if not contraction.bulk or len(contraction.rows) == 1:
        return False
    places = contraction.rows[-1].extent
    assert height <= SPARE, "a line shorter than a strip could be taken"
    return tirx.ceildiv(places, height) * height <= places + tirx.truncdiv(places, const(SPARE))


def _strips_of_lines(contraction: Contraction, m: Expr, height: int) -> Iterator[list[Table]]:
    """The rows of every task: places of a line, the last ones moved back until they end with it."""
    *outer, line = contraction.rows
    strips, worth = tirx.ceildiv(line.extent, height), _worth_threads(contraction, m)
    for at, strip in share_positions([*contraction.batch, *outer], strips, worth):
        first = let("place", tirx.min(strip * height, line.extent - height))
        yield [{**at, line.var: first + i} for i in range(height)]


def _strips(contraction: Contraction, m: Expr, height: int) -> Iterator[list[Table]]:
    """The rows of every task, `height` of them; past the last one it is the last one again."""
    # Strips of one matrix follow each other, while its right side is in the cache.
    strips, worth = tirx.ceildiv(m, height), _worth_threads(contraction, m)
    for at, strip in share_positions(contraction.batch, strips, worth):
        yield [at | _row(contraction, strip * height + i, m, i) for i in range(height)]


def _emit_strip(contraction: Contraction, unit: VectorUnit, rows: list[Table], width: int) -> None:
    """All columns of some rows, in blocks of at most `width`."""
    extents = [as_int(axis.extent) for axis in contraction.reduce]
    if extents != [None]:
        _emit_columns(contraction, unit, rows, width, is_chunked(extents))
        return
    # Sums of unknown length are short ones as a rule.
    with when(contraction.reduce[0].extent <= CHUNK):
        _emit_columns(contraction, unit, rows, width, False)
    with otherwise():
        _emit_columns(contraction, unit, rows, width, True)


def _emit_columns(
    contraction: Contraction, unit: VectorUnit, rows: list[Table], width: int, chunked: bool
) -> None:
    columns, lanes = contraction.column.extent, unit.lanes(32)
    # Eight columns are half of a vector of 512 bits.
    halves = () if lanes < 16 or as_int(columns) is None else (lanes // 2,)
    for first, size in _column_blocks(columns, (width, lanes, *halves)):
        acc = alloc([len(rows), size], "float32", "acc")
        block = _Block(contraction, unit, rows, first, size, acc)
        if chunked:
            block.emit_chunks()
        else:
            block.emit_chunk(partial(over_positions, contraction.reduce, unit.unroll, {}))
        block.emit_outputs()


def describe_tile(contraction: Contraction, unit: VectorUnit) -> str:
    """The rows and columns of a block."""
    height, width = _block_size(unit)
    return f"{height}x{width}"


def _block_size(unit: VectorUnit) -> tuple[int, int]:
    height, width = register_tile(unit)
    # Four rows of two vectors are too few accumulators to hide the latency of loads from L2.
    return min(height, 2 * MOST_ROWS if unit.memory_bound else MOST_ROWS), width


def _worth_threads(contraction: Contraction, m: Expr) -> Expr:
    depth = multiply_extents(extents_of(contraction.reduce))
    work = (
        multiply_extents(extents_of(contraction.batch)) * m * contraction.column.extent * depth * 2
    )
    return tvm.sym.Analyzer().simplify(work) >= PARALLEL_FLOPS


def _row(contraction: Contraction, index: Expr, m: Expr, i: int) -> Table:
    """The place of row number `index`, or of the last one past the end, as variables."""
    place = position_of(contraction.rows, tirx.min(index, m - 1))
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


@dataclass(frozen=True)
class _Block:
    """All rows of a strip by `size` columns from `first` on, whose sums are in `acc`
    [rows, columns].
    """

    contraction: Contraction
    unit: VectorUnit
    rows: list[Table]
    first: Expr
    size: int
    acc: Any

    def cells(self) -> Iterator[tuple[int, Expr]]:
        """(row, lane) of each sum, a row in one vector."""
        return tile(len(self.rows), self.size, self.size)

    def emit_chunk(self, positions: Positions) -> None:
        """Set the sums to those of the products at some positions of the depth."""
        for i, lane in self.cells():
            store(self.acc, 0, i, lane)
        for at in positions():
            for i, lane in self.cells():
                column = {self.contraction.column.var: self.first + lane}
                left = substitute(self.contraction.left, {**self.rows[i], **at})
                # The right side does not depend on the row, so any row's place will do.
                right = substitute(self.contraction.right, {**self.rows[0], **column, **at})
                store(self.acc, load(self.acc, [i, lane]) + left * right, i, lane)

    def emit_chunks(self) -> None:
        """Set the sums to those over the whole depth, chunk by chunk."""
        total = alloc([len(self.rows), self.size], "float32", "total")
        for i, lane in self.cells():
            store(total, 0, i, lane)
        for _, positions in over_chunks(self.contraction.reduce, self.unit.unroll):
            self.emit_chunk(positions)
            for i, lane in self.cells():
                store(total, load(total, [i, lane]) + load(self.acc, [i, lane]), i, lane)
        for i, lane in self.cells():
            store(self.acc, load(total, [i, lane]), i, lane)

    def emit_outputs(self) -> None:
        """The outputs of the sums."""
        for i, lane in self.cells():
            at = {**self.rows[i], self.contraction.column.var: self.first + lane}
            self.contraction.epilogue.store(load(self.acc, [i, lane]), at)
