"""Tiling of a window's result: the rows that are computed at once, and tasks of rows and channels.

Tasks are rows of an image, in order, so that a thread finds in its cache what it wrote in the
previous kernel; in small images they are channels, as in the matmuls around it.
"""

from collections.abc import Iterator

from tvm import tirx

from compiler.passes.cpu.families.pooling import plan
from compiler.passes.cpu.families.pooling.match import Window
from compiler.passes.cpu.shared.sharing import (
    extents_of,
    is_parallel_profitable,
    position_of,
    share_positions,
)
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, let_all, let_opaque, parallel, serial
from compiler.tir.exprs import Expr, Table, const, either, require_int
from compiler.tir.loops import multiply_extents


def rows_at_once(window: Window, unit: VectorUnit) -> int:
    """The number of neighbouring rows that are computed at once."""
    taps = window.tap_count
    plain = window.image is not None and window.inner_rows is not None and all(window.steps)
    return (
        plan.ROWS
        if plain and taps is not None and taps <= plan.MOST_TAPS and unit.registers >= 32
        else 1
    )


def blocks_of_rows(
    window: Window, unit: VectorUnit, lanes: int
) -> Iterator[tuple[Table, int, bool, tuple[Expr, Expr | int]]]:
    """(position of the first row, rows, True if all taps are inside, (first, size) of the channels)
    of all blocks of rows, shared out among threads.
    """
    rows = rows_at_once(window, unit)
    parallel_if = is_parallel_profitable(window.anchored.anchor)
    if rows == 1:
        parts = _channel_parts(window, unit)
        size = require_int(window.channels.extent) // parts
        for position, part in share_positions(window.rows, const(parts), parallel_if):
            yield position, 1, False, (part * size, size)
        return
    inner = window.inner_rows
    assert inner is not None
    low, high = let("row0", inner[0]), let("row1", tirx.max(inner[1], inner[0]))
    row = window.rows[-1]
    for position, (start, end), channels in _tasks(window, low, lanes, parallel_if):
        above = let("above", tirx.min(tirx.max(low, start), end))
        pairs = let("pairs", tirx.max(tirx.min(high, end) - above, 0) // rows)
        below = let("below", above + pairs * rows)
        runs = (start, above - start, 1), (above, pairs, rows), (below, end - below, 1)
        for begin, count, each in runs:
            with serial(count, row.var.name) as i:
                here = {**position, row.var: let("y", begin + i * each)}
                yield here, each, each > 1, channels


def _tasks(
    window: Window, low: Expr, lanes: int, parallel_if: Expr | bool
) -> Iterator[tuple[Table, tuple[Expr, Expr], tuple[Expr, Expr | int]]]:
    """(position around the rows, (first row, end), (first, size) of the channels) of every task.

    low: the first row that is computed at once with the next one.
    """
    *around, row = window.rows
    channels, columns = require_int(window.channels.extent), window.column.extent
    images = multiply_extents(extents_of(around))
    # Tasks end with blocks of rows.
    units = let_opaque("units", tirx.max(tirx.ceildiv(row.extent - low, plan.ROWS), 1))
    wanted = tirx.max(tirx.ceildiv(units, plan.TASK_ROWS // plan.ROWS), plan.LEAST_TASKS)
    cuts = let_opaque("cuts", tirx.min(units, wanted))
    row_blocks = let("blocks", images * cuts)
    vectors, rest = divmod(channels, lanes)
    wanted = tirx.ceildiv(plan.LEAST_TASKS, tirx.max(row_blocks, 1))
    wanted = tirx.max(wanted, -(-vectors // plan.MOST_VECTORS))
    groups = const(1) if rest else let_opaque("groups", tirx.min(wanted, vectors))
    # By rows if the matmul that computes the image, usually of a sixth of the channels, is too.
    operations = images * row.extent * columns * (window.steps[0] * window.steps[1])
    by_rows = operations >= max(channels // 7, 64)
    with parallel(row_blocks * groups, parallel_if) as task:
        inside = let("inside", either(by_rows, groups, row_blocks))
        outer, inner = tirx.truncdiv(task, inside), tirx.truncmod(task, inside)
        block = let("block", either(by_rows, outer, inner))
        cut = let("cut", tirx.truncmod(block, cuts))
        start = let("start", tirx.Select(cut > 0, _edge(low, units, cuts, cut), const(0)))
        end = let("end", tirx.min(_edge(low, units, cuts, cut + 1), row.extent))
        position = let_all(position_of(around, tirx.truncdiv(block, cuts)))
        first, size = const(0), channels
        if not rest:
            group = let("group", either(by_rows, inner, outer))
            first = let("first", tirx.truncdiv(group * vectors, groups) * lanes)
            following = tirx.truncdiv((group + 1) * vectors, groups) * lanes
            size = let("size", following - first)
        yield position, (start, end), (first, size)


def _edge(low: Expr, units: Expr, cuts: Expr, cut: Expr) -> Expr:
    """The first row of a part of the rows."""
    return low + tirx.truncdiv(units * cut, cuts) * plan.ROWS


def _channel_parts(window: Window, unit: VectorUnit) -> int:
    """The number of tasks of the channels of a row: an image of one row, such as a spectrogram
    after its first layers, has no rows to share out.
    """
    channels, lanes = require_int(window.channels.extent), unit.lanes(32)
    if len(window.rows) > 1:
        return 1
    # Full vectors, so that no task has a rest of channels.
    fitting = [parts for parts in range(1, plan.MOST_PARTS + 1) if channels % (parts * lanes) == 0]
    return max(fitting, default=1)
