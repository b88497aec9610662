"""The kernel of matmuls and convolutions of int8, which is exact: one instruction multiplies two
integers of 16 bits or four of 8 bits and adds the products to 32 bits.

Loop order: some rows by some panels over the threads. A task first gathers its rows as groups of
integers, with the whole window of a convolution, which all its panels then read from L2. Then
panel after panel, whose weights stay in L1, tiles of up to six rows, twelve with AVX-512. A tile
accumulates the groups of its rows with all accumulators in registers, then applies the epilogue,
row by row.

If rows were shifted to fit into 8 bits, accumulators lack the shift times the sum of each column:
panels end with the sums of their columns, whose multiple is added at the end. The shift of all
bytes follows from their zero point and the signedness that the instruction takes.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.int8 import plan
from compiler.passes.cpu.families.int8.by_columns import emit_by_columns
from compiler.passes.cpu.families.int8.layout import Layout, layout_of
from compiler.passes.cpu.families.int8.rows import Rows, gather_rows
from compiler.passes.cpu.families.int8.scalar import emit_scalar_tile
from compiler.passes.cpu.families.int8.tasks import share_tasks
from compiler.passes.cpu.shared.prefetching import prefetch_ahead, prefetch_between
from compiler.passes.cpu.shared.register_tile import least, panel_columns
from compiler.passes.cpu.shared.sharing import extents_of
from compiler.passes.cpu.shared.windowed import PanelConv, begin
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    otherwise,
    serial,
    statements,
    steps,
    when,
)
from compiler.tir.dots import multiply_accumulate
from compiler.tir.exprs import Expr, const, load
from compiler.tir.loops import Stmt, multiply_extents


def emit_int8(conv: PanelConv, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    rows = multiply_extents(extents_of(conv.rows))
    with statements() as body:
        known, m = begin(conv)
        layout = layout_of(known, unit)
        if layout.is_by_columns:
            fewest = plan.rows_by_columns(layout.group, layout.length)
            emit_by_columns(layout, m, rows >= fewest)
            return body.stmt
        for rows, panels in share_tasks(layout, unit, m):
            _emit_task(layout, unit, rows, panels)
    return body.stmt


def _emit_task(
    layout: Layout, unit: VectorUnit, rows: tuple[Expr, Expr], panels: tuple[Expr, Expr]
) -> None:
    """Emit some rows by some panels, each (first, count)."""
    groups = alloc([layout.rows * layout.length * layout.words], "int32", "left", "global")
    results = None
    if layout.instruction.scalar:
        # Tiles of single results have no registers left for the epilogue: it runs last, by rows.
        results = alloc([layout.rows * plan.PANELS * layout.width], "float32", "sums", "global")
    left = Rows(groups, alloc([layout.rows], "int32", "shifts") if layout.is_shifted else None)
    # The gathered rows are a quarter or half of the floats: 24 rows of 2304 bytes are 55 kB in L2.
    gather_rows(layout, left, *rows)
    with serial(panels[1], "panel") as p:
        most = layout.sizes[-1]
        with serial(tirx.ceildiv(rows[1], most), "tile") as t:
            row = t * most
            for size in least(layout.sizes, rows[1] - row):
                # Fewer rows are the end of a task, too rare to unroll for.
                unroll = unit.unroll if size == most else 1
                _prefetch_epilogue(layout, rows, (row, size), panels[0] + p)
                if results is None:
                    between = _prefetch_weights(layout, unit, (rows[1], t), panels[0] + p, unroll)
                    loop = unroll, between
                    acc = _emit_tile(layout, left, (row, size), panels[0] + p, loop)
                    _emit_outputs(layout, left, acc, rows, (row, size), panels[0] + p)
                else:
                    acc = emit_scalar_tile(layout, left, (row, size), panels[0] + p, unroll)
                    _store_rows(layout, left, acc, (row, size), panels[0] + p, results, p)
    if results is not None:
        _emit_results(layout, results, rows, panels)


def _prefetch_weights(
    layout: Layout, unit: VectorUnit, tiles: tuple[Expr, Expr], panel: Expr, unroll: int
) -> Callable[[Expr], None]:
    """A callback for `steps` of a tile. The tiles of a task prefetch the next panel; a task of one
    tile reads its panels once, and prefetches its own reads.

    tiles: the rows of the task, and the number of this tile in it.
    """
    (rows, tile), row = tiles, layout.width * layout.group
    own, following = ((panel + i) * layout.stored * row for i in range(2))
    weights, most = layout.conv.weights, layout.sizes[-1]
    share = prefetch_between(
        unit, weights, following, row, const(layout.length), tile, max(layout.rows // most, 1)
    )
    ahead = prefetch_ahead(weights, own, row, unroll)

    def between(group: Expr) -> None:
        if unroll != unit.unroll:
            ahead(group)
            return
        with when(rows > most):
            share(group)
        with otherwise():
            ahead(group)

    return between


def _prefetch_epilogue(
    layout: Layout, rows: tuple[Expr, Expr], part: tuple[Expr, int], panel: Expr
) -> None:
    """Emit prefetches of what the epilogue of a tile reads and writes if the depth is small: it
    would wait for each line of a large image.
    """
    conv, (row, size) = layout.conv, part
    if layout.length > plan.SHALLOW or layout.instruction.scalar or size < layout.sizes[-1]:
        return
    for i in range(size):
        position = conv.epilogue.rows_at(conv.rows, rows[0] + row + i)
        begin = {**position, conv.column.var: panel * layout.width}
        conv.epilogue.prefetch(conv.column.var, layout.width, begin)
        conv.epilogue.prefetch_results(begin, layout.width)


def _emit_tile(
    layout: Layout,
    left: Rows,
    rows: tuple[Expr, int],
    panel: Expr,
    loop: tuple[int, Callable[[Expr], None]],
) -> Any:
    """Emit the rows, (first, count), by one panel over all groups; return the accumulators. loop:
    (unroll, between) of `steps`.
    """
    lanes, starts = layout.lanes, range(0, layout.width, layout.lanes)
    dot = layout.instruction, lanes
    acc = alloc([rows[1] * layout.width], "int32", "acc")
    for i in range(rows[1]):
        for start in starts:
            _store_vector(
                acc, prim.Broadcast(tirx.const(0, "int32"), lanes), _acc_index(layout, i, start)
            )
    unroll, between = loop
    for k in steps(layout.length, unroll, between=between):
        # One load of each vector of weights for all rows; a row is one broadcast from memory.
        weights = [_load_weights(layout, panel, k, start) for start in starts]
        for i in range(rows[1]):
            group = load(left.groups, [(rows[0] + i) * layout.length + k])
            for start, weight in zip(starts, weights, strict=True):
                index = _acc_index(layout, i, start)
                total = load(acc, [index])
                _store_vector(acc, multiply_accumulate(*dot, total, group, weight), index)
    return acc


def _store_vector(buffer: Any, value: Expr, index: Expr) -> None:
    """Emit a store of a vector: the intrinsics take vectors, not lanes of a loop."""
    emit(tirx.BufferStore(buffer, value, [index]))


def _acc_index(layout: Layout, i: int, start: int) -> Expr:
    """The index of a vector of accumulators: row `i`, the columns from `start` on."""
    return prim.Ramp(const(i * layout.width + start), const(1), layout.lanes)


def _load_weights(layout: Layout, panel: Expr, k: Expr, start: int) -> Expr:
    """Row `k` of a panel, a vector of its columns from `start` on."""
    size = layout.group * layout.lanes
    begin = ((panel * layout.stored + k) * layout.width + start) * layout.group
    # Panels are in the order of the instruction's lanes: this is one load.
    vector = load(layout.conv.weights, [prim.Ramp(begin, const(1), size)])
    return vector.astype(f"{layout.instruction.right}x{size}")


def _store_rows(
    layout: Layout, left: Rows, acc: Any, rows: tuple[Expr, int], panel: Expr, results: Any, p: Expr
) -> None:
    """Emit stores of the accumulators, shifts undone, to `results`; p: the panel in the task."""
    lanes = layout.lanes
    for i in range(rows[1]):
        for start in range(0, layout.width, lanes):
            to = ((rows[0] + i) * plan.PANELS + p) * layout.width + start
            vector = _unshift(layout, left, acc, rows[0], i, panel, start)
            _store_vector(results, vector, prim.Ramp(to, const(1), lanes))


def _unshift(
    layout: Layout, left: Rows, acc: Any, first: Expr, i: int, panel: Expr, start: int
) -> Expr:
    """One vector of row `i` of a tile, whose first row is `first`, as float32, the shift undone."""
    lanes, total = layout.lanes, load(acc, [_acc_index(layout, i, start)])
    # (x - shift) @ w + shift * sum(w) = x @ w, all in integers of 32 bits, so it is exact.
    shift = left.shift(layout, first + i)
    if shift is not None:
        columns = _load_weights(layout, panel, const(layout.length), start)
        column_totals = tirx.reinterpret(f"int32x{lanes}", columns)
        total = total + prim.Broadcast(shift, lanes) * column_totals
    return total.astype(f"float32x{lanes}")


def _emit_outputs(
    layout: Layout,
    left: Rows,
    acc: Any,
    rows: tuple[Expr, Expr],
    part: tuple[Expr, int],
    panel: Expr,
) -> None:
    """Emit the epilogue of a tile: the rows `part`, (first, count), of the task's rows."""
    conv, width, (row, size) = layout.conv, layout.width, part
    results = alloc([size * width], "float32", "sums")
    for i in range(size):
        for start in range(0, width, layout.lanes):
            vector = _unshift(layout, left, acc, row, i, panel, start)
            _store_vector(results, vector, _acc_index(layout, i, start))
    for i in range(size):
        # A tile may have more rows than are left of a task.
        with when(row + i < rows[1]):
            position = conv.epilogue.rows_at(conv.rows, rows[0] + row + i)
            for lane in panel_columns(panel, layout.columns, width, layout.lanes):
                here = {**position, conv.column.var: panel * width + lane}
                conv.epilogue.store(load(results, [i * width + lane]), here)


def _emit_results(
    layout: Layout, results: Any, rows: tuple[Expr, Expr], panels: tuple[Expr, Expr]
) -> None:
    """Emit the epilogue of a task, row by row."""
    conv, width = layout.conv, layout.width
    with serial(rows[1], "row") as r:
        position = conv.epilogue.rows_at(conv.rows, rows[0] + r)
        with serial(panels[1], "panel") as p:
            start, column = (r * plan.PANELS + p) * width, (panels[0] + p) * width
            for lane in panel_columns(panels[0] + p, layout.columns, width, layout.lanes):
                here = {**position, conv.column.var: column + lane}
                conv.epilogue.store(load(results, [start + lane]), here)
