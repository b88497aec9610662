"""The kernel of matmuls by numbers of few bits, which stay as they are until they are in registers.

First the left side is made ready once for all columns (`rows`). A task then is a block of rows by
one panel of two vectors of columns, in tiles of up to 8 rows; per tile the blocks of the depth,
whose words are read in one stream, and each word for all rows of the tile. Last, what was fused
behind the matmul, row by row. More rows than some tiles have are multiplied by a panel unpacked to
scratch memory once: to floats, or to bytes (`many`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.ir.ops.quantized.block_matmul import HALF
from compiler.passes.cpu.families.nbits import looked_up
from compiler.passes.cpu.families.nbits.many import ManyRows
from compiler.passes.cpu.families.nbits.match import NBits, product_of
from compiler.passes.cpu.families.nbits.rows import (
    TALL,
    Floats,
    Rounded,
    float_rows,
    looks_up,
    paired_sizes,
    rounded_rows,
    sizes_of,
    with_sums,
)
from compiler.passes.cpu.families.nbits.tiles import (
    emit_floats,
    emit_integers,
    emit_reals,
    emit_unpacked,
)
from compiler.passes.cpu.families.nbits.vectors import Vectors
from compiler.passes.cpu.shared.register_tile import least, panel_columns, rows_for
from compiler.passes.cpu.shared.sharing import bind_extents, extents_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    let,
    let_opaque,
    otherwise,
    serial,
    share_out,
    statements,
    when,
)
from compiler.tir.exprs import Expr, load
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, multiply_extents

ROWS = 64
"""Rows of a task: 64 of 4096 bytes are half of a small L2."""


def describe_tile(nbits: NBits, unit: VectorUnit) -> str:
    """The largest tile and the numbers' form."""
    multiply_extents = product_of(unit)
    integers = nbits.form.rounded and multiply_extents is not None
    rows = (paired_sizes(unit) if integers else sizes_of(nbits, unit))[-1]
    largest = f"{rows}x{nbits.width}"
    if nbits.form.bits == HALF:
        return f"{largest}, float16"
    rounded = (
        f", rows of {'rounded floats' if multiply_extents is None else multiply_extents.right}"
    )
    return (
        f"{largest}, {nbits.form.bits} bits in blocks of {nbits.block}"
        f"{rounded if nbits.form.rounded else ''}"
    )


def emit_nbits(nbits: NBits, unit: VectorUnit) -> Stmt:
    """The kernel: the left side, then tasks of some rows by a panel."""
    with statements() as body:
        for stmt in nbits.prelude:
            emit(stmt)
        axes = bind_extents(nbits.rows)
        known = replace(nbits, rows=axes)
        m = let_opaque("m", multiply_extents(extents_of(axes)))
        left = rounded_rows(known, unit, m) if nbits.form.rounded else float_rows(known, unit, m)
        if isinstance(left, Floats) and looks_up(nbits, unit) and nbits.zeros is not None:
            left = with_sums(known, left, m)
        work = m * (2 * nbits.depth * nbits.columns)
        parts = tirx.ceildiv(m, ROWS)
        for task in share_out(parts * nbits.panels, work >= PARALLEL_FLOPS):
            first = let("first", task // nbits.panels * ROWS)
            panel = let("panel", task % nbits.panels)
            count = let("count", tirx.min(ROWS, m - first))
            if isinstance(left, Rounded):
                _emit_task_of_integers(known, unit, left, m, (first, count), panel)
            else:
                _emit_task_of_floats(known, unit, left, m, (first, count), panel)
    return body.stmt


def _emit_task_of_integers(
    nbits: NBits, unit: VectorUnit, left: Rounded, m: Expr, task: tuple[Expr, Expr], panel: Expr
) -> None:
    """Emit the rounded rows of a task, (first, count), by a panel: many by numbers unpacked to
    bytes, few in as small tiles as there are.
    """
    sizes = sizes_of(nbits, unit)
    with when(task[1] > 2 * sizes[-1]):
        many = ManyRows(Vectors(nbits, unit, panel), left, paired_sizes(unit)[-1], ROWS)
        for rows in many.emit(*task):
            _prefetch_beside(nbits, rows, panel)
        _emit_results(nbits, unit, many.sums, task, (panel, nbits.width))
    with otherwise():
        for _, rows in _tiles(sizes, None, *task):
            _emit_tile_of_integers(nbits, unit, left, m, rows, panel)


def _emit_tile_of_integers(
    nbits: NBits, unit: VectorUnit, left: Rounded, m: Expr, rows: list[Expr], panel: Expr
) -> None:
    """Emit rows by a panel, all vectors of columns at once, or one after the other."""
    held = tirx.min(len(rows), m - rows[0])
    if len(rows) != TALL:
        sums = emit_integers(nbits, left, rows, Vectors(nbits, unit, panel))
        _emit_results(nbits, unit, sums, (rows[0], held), (panel, nbits.width))
        return
    lanes = unit.lanes(32)
    many = nbits.width // lanes
    # The last panel may have columns in some of its vectors alone.
    there = tirx.min(many, tirx.ceildiv(nbits.columns - panel * nbits.width, lanes))
    with serial(let("there", there) if nbits.columns % nbits.width else many, "vector") as v:
        sums = emit_integers(nbits, left, rows, Vectors(nbits, unit, panel, v))
        _emit_results(nbits, unit, sums, (rows[0], held), (panel * many + v, lanes))


def _prefetch_beside(nbits: NBits, rows: list[Expr], panel: Expr) -> None:
    """Prefetch what the results of a tile are joined with: its rows lie a row of the result apart,
    and are in no cache where they are many and long.
    """
    column = nbits.column.var
    for row in rows if nbits.epilogue.reads_beside(column) else ():
        at = {**nbits.epilogue.rows_at(nbits.rows, row), column: panel * nbits.width}
        nbits.epilogue.prefetch(column, nbits.width, at)


def _emit_task_of_floats(
    nbits: NBits, unit: VectorUnit, left: Floats, m: Expr, task: tuple[Expr, Expr], panel: Expr
) -> None:
    """Emit the rows of a task, (first, count), by a panel: unpacked in registers for a tile of
    them, in scratch memory for more.
    """
    sizes, looks = sizes_of(nbits, unit), looks_up(nbits, unit)
    # Unpacking costs as much as multiplying some rows: beyond one tile of them, or two of numbers
    # that are looked up, a panel of reals in scratch memory is written once and read by each tile.
    with when(task[1] > (2 if looks else 1) * sizes[-1]):
        reals = alloc([nbits.blocks * nbits.block * nbits.width], "float32", "reals", "global")
        emit_unpacked(nbits, unit, panel, reals)
        for row, rows in _tiles((looked_up.ROWS if looks else rows_for(unit, 2),), m, *task):
            sums = emit_reals(nbits, unit, left, rows, panel, reals)
            _emit_results(
                nbits, unit, sums, (row, tirx.min(len(rows), m - row)), (panel, nbits.width)
            )
    with otherwise():
        for row, rows in _tiles(sizes, m, *task):
            sums = emit_floats(nbits, unit, left, rows, panel)
            _emit_results(
                nbits, unit, sums, (row, tirx.min(len(rows), m - row)), (panel, nbits.width)
            )


def _tiles(
    sizes: Sequence[int], m: Expr | None, first: Expr, count: Expr
) -> Iterator[tuple[Expr, list[Expr]]]:
    """(first row, rows) of every tile of a task: past the last of `m` rows it is that one again,
    and where m is None, rows that lie there and mean nothing.
    """
    with serial(tirx.ceildiv(count, sizes[-1]), "tile") as tile:
        row = let("row", first + tile * sizes[-1])
        for size in least(sizes, first + count - row):
            # A tile reads whole rows only, and the caller stores each row once.
            yield (
                row,
                [
                    row + i if m is None else let(f"row{i}", tirx.min(row + i, m - 1))
                    for i in range(size)
                ],
            )


def _emit_results(
    nbits: NBits,
    unit: VectorUnit,
    sums: Any,
    rows: tuple[Expr, Expr],
    columns: tuple[Expr, int],
) -> None:
    """Emit what was fused behind the matmul, row by row: for (first, count) rows, and the columns
    of a panel of some width, (number, width).
    """
    lanes, (panel, width) = unit.lanes(32), columns
    # Serial, not unrolled: what follows the matmul may be long, and tiles come in four sizes.
    with serial(rows[1], "row") as i:
        at = nbits.epilogue.rows_at(nbits.rows, rows[0] + i)
        for lane in panel_columns(panel, nbits.columns, width, lanes):
            here = {**at, nbits.column.var: panel * width + lane}
            nbits.epilogue.store(load(sums, [i * width + lane]), here)
