"""The kernel of matmuls and convolutions of small integers, exact: two integers of 16 bits or four
of 8 bits are multiplied and added to 32 bits by one instruction.

Loop order: some rows by some panels over the threads. A task first gathers its rows as groups of
integers, with the whole window of a convolution, which then serve all its panels from L2. Then
panel after panel, whose weights stay in L1, tiles of up to six rows, twelve with AVX-512. A tile
adds up the groups of its rows with all accumulators in registers, then computes what was fused
behind the matmul, row by row.

Rows that were shifted to fit into 8 bits are lacking the shift times the sum of each column: the
sums of columns stand behind a panel, and their multiple is added to the accumulators in the end.
Bytes are all shifted by one number, which their zero point and the sign that the instruction takes
decide.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.int8.layout import Layout, layout_of
from compiler.passes.cpu.families.int8.rows import Rows, gather_rows
from compiler.passes.cpu.families.int8.scalar import emit_scalar_tile
from compiler.passes.cpu.families.int8.tasks import PANELS, share_tasks
from compiler.passes.cpu.shared.prefetching import prefetch_ahead, prefetch_between
from compiler.passes.cpu.shared.register_tile import least, panel_columns
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
from compiler.tir.exprs import Expr, const, load
from compiler.tir.loops import Stmt

SHALLOW = 64
"""Words of a row up to which what follows is prefetched: 64 channels to 256 with a residual of
floats took 0.89 of the time, with one of bytes as long as before.
"""


def emit_int8(conv: PanelConv, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    with statements() as body:
        known, m = begin(conv)
        layout = layout_of(known, unit)
        for rows, panels in share_tasks(layout, unit, m):
            _emit_task(layout, unit, rows, panels)
    return body.stmt


def _emit_task(
    layout: Layout, unit: VectorUnit, rows: tuple[Expr, Expr], panels: tuple[Expr, Expr]
) -> None:
    """Emit some rows by some panels, each given as (first, count)."""
    groups = alloc([layout.rows * layout.length * layout.words], "int32", "left", "global")
    sums = None
    if layout.product.scalar:
        # One result at a time has no register left for what follows: whole rows are written last.
        sums = alloc([layout.rows * PANELS * layout.width], "float32", "sums", "global")
    left = Rows(groups, alloc([layout.rows], "int32", "shifts") if layout.shifted else None)
    # The gathered rows are a quarter or half of the floats: 24 rows of 2304 bytes are 55 kB in L2.
    gather_rows(layout, left, *rows)
    with serial(panels[1], "panel") as p:
        most = layout.sizes[-1]
        with serial(tirx.ceildiv(rows[1], most), "tile") as t:
            row = t * most
            for size in least(layout.sizes, rows[1] - row):
                # Fewer rows are the end of a task, too rare to be worth longer code.
                together = unit.unroll if size == most else 1
                _prefetch_beside(layout, rows, (row, size), panels[0] + p)
                if sums is None:
                    between = _prefetch_weights(layout, unit, (rows[1], t), panels[0] + p, together)
                    loop = together, between
                    acc = _emit_tile(layout, left, (row, size), panels[0] + p, loop)
                    _emit_outputs(layout, left, acc, rows, (row, size), panels[0] + p)
                else:
                    acc = emit_scalar_tile(layout, left, (row, size), panels[0] + p, together)
                    _keep(layout, left, acc, (row, size), panels[0] + p, sums, p)
    if sums is not None:
        _emit_results(layout, sums, rows, panels)


def _prefetch_weights(
    layout: Layout, unit: VectorUnit, tiles: tuple[Expr, Expr], panel: Expr, together: int
) -> Callable[[Expr], None]:
    """What a tile does before each group of steps. The tiles of a task prefetch the next panel; a
    task of one reads its panels once, and prefetches what it reads itself.

    tiles: the rows of the task, and which tile of it this is.
    """
    (rows, tile), row = tiles, layout.width * layout.group
    own, following = ((panel + i) * layout.stored * row for i in range(2))
    weights, most = layout.conv.weights, layout.sizes[-1]
    share = prefetch_between(
        unit, weights, following, row, const(layout.length), tile, max(layout.rows // most, 1)
    )
    ahead = prefetch_ahead(weights, own, row, together)

    def between(group: Expr) -> None:
        if together != unit.unroll:
            ahead(group)
            return
        with when(rows > most):
            share(group)
        with otherwise():
            ahead(group)

    return between


def _prefetch_beside(
    layout: Layout, rows: tuple[Expr, Expr], part: tuple[Expr, int], panel: Expr
) -> None:
    """Prefetch what the outputs of a tile read, and where they go, if sums are short: they would
    wait for each line of a large image.
    """
    conv, (row, size) = layout.conv, part
    if layout.length > SHALLOW or layout.product.scalar or size < layout.sizes[-1]:
        return
    for i in range(size):
        at = conv.epilogue.rows_at(conv.rows, rows[0] + row + i)
        here = {**at, conv.column.var: panel * layout.width}
        conv.epilogue.prefetch(conv.column.var, layout.width, here)
        conv.epilogue.prefetch_results(here, layout.width)


def _emit_tile(
    layout: Layout,
    left: Rows,
    rows: tuple[Expr, int],
    panel: Expr,
    loop: tuple[int, Callable[[Expr], None]],
) -> Any:
    """Emit the rows, (first, count), by one panel over all groups; gives the accumulators; loop:
    (together, between) of `steps`.
    """
    lanes, starts = layout.lanes, range(0, layout.width, layout.lanes)
    acc = alloc([rows[1] * layout.width], "int32", "acc")
    for i in range(rows[1]):
        for start in starts:
            _store_vector(
                acc, prim.Broadcast(tirx.const(0, "int32"), lanes), _place(layout, i, start)
            )
    together, between = loop
    for k in steps(layout.length, together, between=between):
        # One load of each vector of weights for all rows; a row is one broadcast from memory.
        weights = [_weights(layout, panel, k, start) for start in starts]
        for i in range(rows[1]):
            given = load(left.groups, [(rows[0] + i) * layout.length + k])
            for start, weight in zip(starts, weights, strict=True):
                place = _place(layout, i, start)
                total = load(acc, [place])
                _store_vector(acc, _multiplied(layout, total, given, weight), place)
    return acc


def _store_vector(buffer: Any, value: Expr, place: Expr) -> None:
    """Emit a store of a whole vector: the intrinsics take vectors, not lanes of a loop."""
    emit(tirx.BufferStore(buffer, value, [place]))


def _place(layout: Layout, i: int, start: int) -> Expr:
    """One vector of the accumulators: row `i`, the columns from `start` on."""
    return prim.Ramp(const(i * layout.width + start), const(1), layout.lanes)


def _weights(layout: Layout, panel: Expr, k: Expr, start: int) -> Expr:
    """Row `k` of a panel, a vector of its columns from `start` on."""
    size = layout.group * layout.lanes
    place = ((panel * layout.stored + k) * layout.width + start) * layout.group
    # Panels lie in the order of the instruction's lanes: this is one load.
    vector = load(layout.conv.weights, [prim.Ramp(place, const(1), size)])
    return vector.astype(f"{layout.product.right}x{size}")


def _multiplied(layout: Layout, total: Expr, given: Expr, weights: Expr) -> Expr:
    """The total plus, for each column, the groups multiplied integer by integer."""
    product, lanes = layout.product, layout.lanes
    if product.intrinsic is None:
        return total + prim.Broadcast(given, lanes) * weights.astype(f"int32x{lanes}")
    # The instruction takes all groups of a vector: the same one of the row, one a column.
    left = tirx.reinterpret(
        f"{product.right}x{product.group * lanes}", prim.Broadcast(given, lanes)
    )
    arguments = (total, left, weights) if product.adds else (left, weights)
    result = tirx.call_llvm_pure_intrin(f"int32x{lanes}", product.intrinsic, *arguments)
    return result if product.adds else total + result


def _keep(
    layout: Layout,
    left: Rows,
    acc: Any,
    rows: tuple[Expr, int],
    panel: Expr,
    sums: Any,
    p: Expr,
) -> None:
    """Emit the accumulators' way to scratch memory, shifts taken back; p: the panel in the task."""
    lanes = layout.lanes
    for i in range(rows[1]):
        for start in range(0, layout.width, lanes):
            to = ((rows[0] + i) * PANELS + p) * layout.width + start
            vector = _sum(layout, left, acc, rows[0], i, panel, start)
            _store_vector(sums, vector, prim.Ramp(to, const(1), lanes))


def _sum(
    layout: Layout, left: Rows, acc: Any, first: Expr, i: int, panel: Expr, start: int
) -> Expr:
    """One vector of row `i` of a tile, whose first row is `first`, as float32: the shift taken
    back.
    """
    lanes, total = layout.lanes, load(acc, [_place(layout, i, start)])
    # (x - shift) @ w + shift * sum(w) = x @ w, all in integers of 32 bits, so it is exact.
    shift = left.shift(layout, first + i)
    if shift is not None:
        columns = _weights(layout, panel, const(layout.length), start)
        sum_of_each = tirx.reinterpret(f"int32x{lanes}", columns)
        total = total + prim.Broadcast(shift, lanes) * sum_of_each
    return total.astype(f"float32x{lanes}")


def _emit_outputs(
    layout: Layout,
    left: Rows,
    acc: Any,
    rows: tuple[Expr, Expr],
    part: tuple[Expr, int],
    panel: Expr,
) -> None:
    """Emit the outputs of a tile: the rows `part`, (first, count), of the task's rows."""
    conv, width, (row, size) = layout.conv, layout.width, part
    sums = alloc([size * width], "float32", "sums")
    for i in range(size):
        for start in range(0, width, layout.lanes):
            vector = _sum(layout, left, acc, row, i, panel, start)
            _store_vector(sums, vector, _place(layout, i, start))
    for i in range(size):
        # A tile has more rows than are left at the end of a task.
        with when(row + i < rows[1]):
            at = conv.epilogue.rows_at(conv.rows, rows[0] + row + i)
            for lane in panel_columns(panel, layout.columns, width, layout.lanes):
                here = {**at, conv.column.var: panel * width + lane}
                conv.epilogue.store(load(sums, [i * width + lane]), here)


def _emit_results(
    layout: Layout, sums: Any, rows: tuple[Expr, Expr], panels: tuple[Expr, Expr]
) -> None:
    """Emit what was fused behind the matmul, row by row."""
    conv, width = layout.conv, layout.width
    with serial(rows[1], "row") as r:
        at = conv.epilogue.rows_at(conv.rows, rows[0] + r)
        with serial(panels[1], "panel") as p:
            start, column = (r * PANELS + p) * width, (panels[0] + p) * width
            for lane in panel_columns(panels[0] + p, layout.columns, width, layout.lanes):
                here = {**at, conv.column.var: column + lane}
                conv.epilogue.store(load(sums, [start + lane]), here)
