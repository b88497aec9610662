"""The kernel of matmuls whose two sides are both computed at run time.

Loop order: batch and strips of a few rows over the threads; in a strip, blocks of columns; in a
block, the depth. Registers hold the accumulators of a block, one vector or two of each row. The
right side is read in place, once for each strip, so it has to stay in the cache.

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
from compiler.passes.cpu.families.matmul_dynamic import plan
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

SPARE = 8
"""Strips stay within the lines of an image if that repeats at most one position in so many: their
positions are a fixed distance apart, where each position of other strips takes divisions.
"""


def emit_matmul_dynamic(contraction: Contraction, unit: VectorUnit) -> Stmt:
    """The body of the kernel, in tasks of a strip of rows of one matrix of the batch."""
    height, width = _block_size(unit)
    with statements() as body:
        for stmt in contraction.prelude:
            emit(stmt)
        m = let_opaque("m", multiply_extents(extents_of(contraction.rows)))
        with when(_is_by_lines(contraction, height)):
            for rows in _strips_of_lines(contraction, m, height):
                _emit_strip(contraction, unit, rows, width)
        with otherwise():
            # High strips would repeat a few rows several times.
            for each in least([plan.MOST_ROWS, height] if height > plan.MOST_ROWS else [height], m):
                for rows in _strips(contraction, m, each):
                    _emit_strip(contraction, unit, rows, width)
    return body.stmt


def _is_by_lines(contraction: Contraction, height: int) -> Expr | bool:
    """The condition that strips stay within the lines of an image."""
    if not contraction.bulk or len(contraction.rows) == 1:
        return False
    positions = contraction.rows[-1].extent
    assert height <= SPARE, "a line shorter than a strip could be taken"
    return tirx.ceildiv(positions, height) * height <= positions + tirx.truncdiv(
        positions, const(SPARE)
    )


def _strips_of_lines(contraction: Contraction, m: Expr, height: int) -> Iterator[list[Table]]:
    """The rows of every task: positions of a line, the last ones moved back to end with it."""
    *outer, line = contraction.rows
    strips, parallel_if = tirx.ceildiv(line.extent, height), _is_parallel(contraction, m)
    for position, strip in share_positions([*contraction.batch, *outer], strips, parallel_if):
        first = let("place", tirx.min(strip * height, line.extent - height))
        yield [{**position, line.var: first + i} for i in range(height)]


def _strips(contraction: Contraction, m: Expr, height: int) -> Iterator[list[Table]]:
    """The `height` rows of every task; past the last one it is the last one again."""
    # Strips of one matrix are neighbours, so that its right side stays in the cache.
    strips, parallel_if = tirx.ceildiv(m, height), _is_parallel(contraction, m)
    for position, strip in share_positions(contraction.batch, strips, parallel_if):
        yield [
            position | _row_position(contraction, strip * height + i, m, i) for i in range(height)
        ]


def _emit_strip(contraction: Contraction, unit: VectorUnit, rows: list[Table], width: int) -> None:
    """Emit all columns of some rows, in blocks of at most `width`."""
    extents = [as_int(axis.extent) for axis in contraction.reduce]
    if extents != [None]:
        _emit_columns(contraction, unit, rows, width, is_chunked(extents))
        return
    # Sums of unknown length are usually short.
    with when(contraction.reduce[0].extent <= CHUNK):
        _emit_columns(contraction, unit, rows, width, False)
    with otherwise():
        _emit_columns(contraction, unit, rows, width, True)


def _emit_columns(
    contraction: Contraction, unit: VectorUnit, rows: list[Table], width: int, chunked: bool
) -> None:
    columns, lanes = contraction.column.extent, unit.lanes(32)
    # Eight columns are half of a vector of 512 bits.
    smaller = () if lanes < 16 or as_int(columns) is None else (lanes // 2,)
    for first, size in _column_blocks(columns, (width, lanes, *smaller)):
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
    return min(height, 2 * plan.MOST_ROWS if unit.memory_bound else plan.MOST_ROWS), width


def _is_parallel(contraction: Contraction, m: Expr) -> Expr:
    depth = multiply_extents(extents_of(contraction.reduce))
    work = (
        multiply_extents(extents_of(contraction.batch)) * m * contraction.column.extent * depth * 2
    )
    return tvm.sym.Analyzer().simplify(work) >= PARALLEL_FLOPS


def _row_position(contraction: Contraction, index: Expr, m: Expr, i: int) -> Table:
    """Emit variables for the position of row number `index`, of the last row if that is greater."""
    position = position_of(contraction.rows, tirx.min(index, m - 1))
    # The divisions of a position are computed once, not at every step of the depth.
    return {var: fresh(f"{var.name}_{i}", value) for var, value in position.items()}


def _column_blocks(extent: Expr, widths: tuple[int, ...]) -> Iterator[tuple[Expr, int]]:
    """(first column, width) of the blocks of columns: of the greatest width that the columns fill.

    The last block is moved back until it ends with the columns.
    """
    if not widths:
        with serial(extent, "column") as column:
            yield column, 1
        return
    # Two vectors, one, or single columns: decided once, outside of the loop over the blocks.
    size, *smaller = widths
    with when(tvm.sym.Analyzer().simplify(extent >= size)):
        with serial(tirx.ceildiv(extent, size), "block") as block:
            yield tirx.min(block * size, extent - size), size
    with otherwise():
        yield from _column_blocks(extent, tuple(smaller))


@dataclass(frozen=True)
class _Block:
    """All rows of a strip by `size` columns from `first` on; acc: accumulators [rows, columns]."""

    contraction: Contraction
    unit: VectorUnit
    rows: list[Table]
    first: Expr
    size: int
    acc: Any

    def cells(self) -> Iterator[tuple[int, Expr]]:
        """(row, lane) of each accumulator, a row in one vector."""
        return tile(len(self.rows), self.size, self.size)

    def emit_chunk(self, positions: Positions) -> None:
        """Emit accumulators of some positions of the depth."""
        for i, lane in self.cells():
            store(self.acc, 0, i, lane)
        for position in positions():
            for i, lane in self.cells():
                column = {self.contraction.column.var: self.first + lane}
                left = substitute(self.contraction.left, {**self.rows[i], **position})
                # The right side does not depend on the row: any row's position will do.
                right = substitute(self.contraction.right, {**self.rows[0], **column, **position})
                store(self.acc, load(self.acc, [i, lane]) + left * right, i, lane)

    def emit_chunks(self) -> None:
        """Emit accumulators of the whole depth, chunk by chunk."""
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
        """Emit the outputs of the accumulators."""
        for i, lane in self.cells():
            position = {**self.rows[i], self.contraction.column.var: self.first + lane}
            self.contraction.epilogue.store(load(self.acc, [i, lane]), position)
