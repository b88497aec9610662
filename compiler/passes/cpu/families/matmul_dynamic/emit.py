"""The kernel for products of two tensors that are both computed at run time.

Loop order: batch and strips of a few rows over the threads; in a strip, blocks of columns; in a
block, the depth, with all sums of the block in registers. The right side is read where it lies,
once for each strip, so it has to stay in the cache.

Rows and columns past the end are clamped into the last whole block, which computes some results
twice and needs no masks.
"""

from collections.abc import Iterator

import tvm
from tvm import tirx

from compiler.passes.cpu.families.matmul.match import Contraction
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.passes.cpu.shared.register_tile import register_tile
from compiler.passes.cpu.shared.sharing import extents_of, place_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    fresh,
    let_all,
    let_opaque,
    nest,
    otherwise,
    serial,
    share_out,
    statements,
    steps,
    store,
    tile,
    when,
)
from compiler.tir.exprs import Expr, Table, as_int, load, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, product, unfuse

MOST_ROWS = 4
"""Rows of a strip at most: each row reads its own elements of the left side, unpacked."""


def emit_blocked(contraction: Contraction, unit: VectorUnit) -> Stmt | None:
    """The kernel, None where columns are not contiguous or there are no rows to share them."""
    column = contraction.column.var
    vectors = all(vectorizable(out.value, column) for out in contraction.epilogue.outputs)
    contiguous = as_int(stride(contraction.right.indices[0], column)) == 1
    if not contiguous or not vectors or not contraction.rows or not contraction.reduce:
        return None
    if float(getattr(contraction.init, "value", 1)) != 0.0:
        return None
    height, width = register_tile(unit)
    height = min(height, MOST_ROWS)
    with statements() as body:
        for stmt in contraction.prelude:
            emit(stmt)
        m = let_opaque("m", product(extents_of(contraction.rows)))
        extents = [*extents_of(contraction.batch), tirx.ceildiv(m, height)]
        for task in share_out(product(extents), _worth_threads(contraction, m)):
            *place, strip = unfuse(task, extents)
            batch = let_all(dict(zip([axis.var for axis in contraction.batch], place, strict=True)))
            rows = [batch | _row(contraction, strip * height + i, m, i) for i in range(height)]
            for columns, size in _column_blocks(contraction.column.extent, (width, unit.lanes(32))):
                _block(contraction, unit, rows, columns, size)
    return body.stmt


def _worth_threads(contraction: Contraction, m: Expr) -> Expr:
    depth = product(extents_of(contraction.reduce))
    work = product(extents_of(contraction.batch)) * m * contraction.column.extent * depth * 2
    return tvm.sym.Analyzer().simplify(work) >= PARALLEL_FLOPS


def _row(contraction: Contraction, index: Expr, m: Expr, i: int) -> Table:
    """The place of row number `index`, or of the last one past the end, as variables."""
    place = place_of(contraction.rows, tirx.min(index, m - 1))
    return {var: fresh(f"{var.name}_{i}", value) for var, value in place.items()}


def _column_blocks(extent: Expr, widths: tuple[int, ...]) -> Iterator[tuple[Expr, int]]:
    """(first column, width) of blocks of the greatest width that the columns fill, else of one.

    The last block is moved back until it ends with the columns.
    """
    if not widths:
        with serial(extent, "column") as column:
            yield column, 1
        return
    size, *smaller = widths
    with when(tvm.sym.Analyzer().simplify(extent >= size)):
        with serial(tirx.ceildiv(extent, size), "block") as block:
            yield tirx.min(block * size, extent - size), size
    with otherwise():
        yield from _column_blocks(extent, tuple(smaller))


def _block(
    contraction: Contraction, unit: VectorUnit, rows: list[Table], first: Expr, size: int
) -> None:
    """All rows by `size` columns from `first` on, over the whole depth: sums stay in registers."""
    *outer, last = contraction.reduce
    sums = alloc([len(rows), size], "float32", "acc")
    for i, lane in tile(len(rows), size, size):
        store(sums, 0, i, lane)
    for place in nest(outer):
        for k in steps(last.extent, unit.together):
            at = {**place, last.var: k}
            for i, lane in tile(len(rows), size, size):
                column = {contraction.column.var: first + lane}
                left = substitute(contraction.left, {**rows[i], **at})
                right = substitute(contraction.right, {**rows[0], **column, **at})
                store(sums, load(sums, [i, lane]) + left * right, i, lane)
    for i, lane in tile(len(rows), size, size):
        column = {contraction.column.var: first + lane}
        emit(contraction.epilogue.write(load(sums, [i, lane]), {**rows[i], **column}))
