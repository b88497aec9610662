"""The kernel of matmuls by block-wise quantized weights, which are dequantized in registers.

First the left side is prepared once for all columns (`rows`). A task then is a block of rows by one
panel of two vectors of columns, in tiles of up to 8 rows; per tile the blocks of the depth, whose
words are read in one stream, each once for all rows of the tile. Last, the epilogue, row by row.
More rows than some tiles have are multiplied by a panel that is unpacked to scratch memory once: to
floats, or to bytes (`many`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.ir.ops.quantized.block_matmul import HALF
from compiler.passes.cpu.families.nbits import plan
from compiler.passes.cpu.families.nbits.many import ManyRows
from compiler.passes.cpu.families.nbits.match import BlockMatmul, instruction_of
from compiler.passes.cpu.families.nbits.rows import (
    FloatRows,
    QuantizedRows,
    add_block_totals,
    has_lookup,
    integer_sizes,
    prepare_float_rows,
    quantize_rows,
    sizes_of,
)
from compiler.passes.cpu.families.nbits.tiles import (
    dequantize_panel,
    emit_floats,
    emit_integers,
    multiply_panel,
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
    parallel,
    serial,
    statements,
    when,
)
from compiler.tir.exprs import Expr, load
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, multiply_extents


def describe_tile(matmul: BlockMatmul, unit: VectorUnit) -> str:
    """The largest tile and the form of the weights."""
    instruction = instruction_of(unit)
    integers = matmul.form.quantized_rows and instruction is not None
    rows = (integer_sizes(unit) if integers else sizes_of(matmul, unit))[-1]
    tile = f"{rows}x{matmul.width}"
    if matmul.form.bits == HALF:
        return f"{tile}, float16"
    row_form = f", rows of {'rounded floats' if instruction is None else instruction.right}"
    kind = "4-bit codes" if matmul.form.codes else f"{matmul.form.bits} bits"
    return (
        f"{tile}, {kind} in blocks of {matmul.block}"
        f"{row_form if matmul.form.quantized_rows else ''}"
    )


def emit_block_matmul(matmul: BlockMatmul, unit: VectorUnit) -> Stmt:
    """The body of the kernel: the left side, then tasks of some rows by a panel."""
    with statements() as body:
        for stmt in matmul.prelude:
            emit(stmt)
        axes = bind_extents(matmul.rows)
        known = replace(matmul, rows=axes)
        m = let_opaque("m", multiply_extents(extents_of(axes)))
        left = (
            quantize_rows(known, unit, m)
            if matmul.form.quantized_rows
            else prepare_float_rows(known, unit, m)
        )
        if isinstance(left, FloatRows) and has_lookup(matmul, unit) and matmul.zeros is not None:
            left = add_block_totals(known, left, m)
        work = m * (2 * matmul.depth * matmul.columns)
        parts = tirx.ceildiv(m, plan.TASK_ROWS)
        with parallel(parts * matmul.panels, work >= PARALLEL_FLOPS) as task:
            first = let("first", task // matmul.panels * plan.TASK_ROWS)
            panel = let("panel", task % matmul.panels)
            count = let("count", tirx.min(plan.TASK_ROWS, m - first))
            if isinstance(left, QuantizedRows):
                _emit_integer_task(known, unit, left, m, (first, count), panel)
            else:
                _emit_float_task(known, unit, left, m, (first, count), panel)
    return body.stmt


def _emit_integer_task(
    matmul: BlockMatmul,
    unit: VectorUnit,
    left: QuantizedRows,
    m: Expr,
    task: tuple[Expr, Expr],
    panel: Expr,
) -> None:
    """Emit the quantized rows of a task, (first, count), by a panel: many by weights unpacked to
    bytes, few in the smallest tiles that hold them.
    """
    sizes = sizes_of(matmul, unit)
    with when(task[1] > 2 * sizes[-1]):
        many = ManyRows(Vectors(matmul, unit, panel), left, integer_sizes(unit)[-1], plan.TASK_ROWS)
        for rows in many.emit(*task):
            _prefetch_residuals(matmul, rows, panel)
        _emit_results(matmul, unit, many.acc, task, (panel, matmul.width))
    with otherwise():
        for _, rows in _tiles(sizes, None, *task):
            _emit_integer_tile(matmul, unit, left, m, rows, panel)


def _emit_integer_tile(
    matmul: BlockMatmul,
    unit: VectorUnit,
    left: QuantizedRows,
    m: Expr,
    rows: list[Expr],
    panel: Expr,
) -> None:
    """Emit rows by a panel, all vectors of columns at once, or one after the other."""
    row_count = tirx.min(len(rows), m - rows[0])
    if len(rows) != plan.TALL:
        acc = emit_integers(matmul, left, rows, Vectors(matmul, unit, panel))
        _emit_results(matmul, unit, acc, (rows[0], row_count), (panel, matmul.width))
        return
    lanes = unit.lanes(32)
    many = matmul.width // lanes
    # Not all vectors of the last panel have columns.
    vectors = tirx.min(many, tirx.ceildiv(matmul.columns - panel * matmul.width, lanes))
    with serial(let("there", vectors) if matmul.columns % matmul.width else many, "vector") as v:
        acc = emit_integers(matmul, left, rows, Vectors(matmul, unit, panel, v))
        _emit_results(matmul, unit, acc, (rows[0], row_count), (panel * many + v, lanes))


def _prefetch_residuals(matmul: BlockMatmul, rows: list[Expr], panel: Expr) -> None:
    """Emit prefetches of the tensors that the epilogue of a tile reads: its rows are far apart, and
    in no cache where they are many and long.
    """
    column = matmul.column.var
    for row in rows if matmul.epilogue.reads_beside(column) else ():
        position = {**matmul.epilogue.rows_at(matmul.rows, row), column: panel * matmul.width}
        matmul.epilogue.prefetch(column, matmul.width, position)


def _emit_float_task(
    matmul: BlockMatmul,
    unit: VectorUnit,
    left: FloatRows,
    m: Expr,
    task: tuple[Expr, Expr],
    panel: Expr,
) -> None:
    """Emit the rows of a task, (first, count), by a panel: dequantized in registers for one tile,
    in scratch memory for more.
    """
    sizes, has_table = sizes_of(matmul, unit), has_lookup(matmul, unit)
    # Dequantizing takes as long as multiplying some rows: for more than one tile, or two with table
    # lookups, a dequantized panel in scratch memory is written once and read by each tile.
    with when(task[1] > (2 if has_table else 1) * sizes[-1]):
        dequantized = alloc(
            [matmul.blocks * matmul.block * matmul.width], "float32", "reals", "global"
        )
        dequantize_panel(matmul, unit, panel, dequantized)
        for row, rows in _tiles((plan.LOOKUP_ROWS if has_table else rows_for(unit, 2),), m, *task):
            acc = multiply_panel(matmul, unit, left, rows, panel, dequantized)
            _emit_results(
                matmul, unit, acc, (row, tirx.min(len(rows), m - row)), (panel, matmul.width)
            )
    with otherwise():
        for row, rows in _tiles(sizes, m, *task):
            acc = emit_floats(matmul, unit, left, rows, panel)
            _emit_results(
                matmul, unit, acc, (row, tirx.min(len(rows), m - row)), (panel, matmul.width)
            )


def _tiles(
    sizes: Sequence[int], m: Expr | None, first: Expr, count: Expr
) -> Iterator[tuple[Expr, list[Expr]]]:
    """(first row, rows) of every tile of a task. Past the last of `m` rows it is that one again;
    where m is None, rows past it are computed and not stored.
    """
    with serial(tirx.ceildiv(count, sizes[-1]), "tile") as tile:
        row = let("row", first + tile * sizes[-1])
        for size in least(sizes, first + count - row):
            # A tile reads existing rows only, and the caller stores each row once.
            yield (
                row,
                [
                    row + i if m is None else let(f"row{i}", tirx.min(row + i, m - 1))
                    for i in range(size)
                ],
            )


def _emit_results(
    matmul: BlockMatmul,
    unit: VectorUnit,
    acc: Any,
    rows: tuple[Expr, Expr],
    columns: tuple[Expr, int],
) -> None:
    """Emit the epilogue, row by row: for rows, (first, count), and the columns of a panel, (number,
    width).
    """
    lanes, (panel, width) = unit.lanes(32), columns
    # Serial, not unrolled: the epilogue may be long, and there are four sizes of tiles.
    with serial(rows[1], "row") as i:
        position = matmul.epilogue.rows_at(matmul.rows, rows[0] + i)
        for lane in panel_columns(panel, matmul.columns, width, lanes):
            here = {**position, matmul.column.var: panel * width + lane}
            matmul.epilogue.store(load(acc, [i * width + lane]), here)
