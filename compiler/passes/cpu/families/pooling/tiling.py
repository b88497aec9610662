"""Which rows of a window's result are computed together, and which of them and which channels are a
task.

Tasks are rows of an image, in order, so that a thread finds in its cache what it wrote in the
kernel before; of small images they are channels, as those of the matmuls around it.
"""

from collections.abc import Iterator

from tvm import tirx

from compiler.passes.cpu.families.pooling.match import Window
from compiler.passes.cpu.shared.sharing import (
    extents_of,
    is_parallel_profitable,
    position_of,
    share_positions,
)
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, let_all, let_opaque, serial, share_out
from compiler.tir.exprs import Expr, Table, const, either, require_int
from compiler.tir.loops import multiply_extents

ROWS = 2
"""Rows computed together where registers hold the weights of a window beside the accumulators: what
is read of the image serves both.
"""

MOST_TAPS = 25
"""Taps up to which several rows are computed together: each is code of its own."""

MOST_VECTORS = 9
"""Vectors of channels of a task at most: its part of some rows and its weights stay in L1."""

TASK_ROWS = 8
"""Rows of a task at most."""

LEAST_TASKS = 12
"""Tasks where there are as many rows and vectors: each thread gets about the same."""

MOST_PARTS = 8
"""Tasks into which the channels of a single row are cut at most."""


def rows_together(window: Window, unit: VectorUnit) -> int:
    """How many neighbouring rows are computed at once."""
    taps = window.taps_in_all
    plain = window.image is not None and window.inner_rows is not None and all(window.steps)
    return ROWS if plain and taps is not None and taps <= MOST_TAPS and unit.registers >= 32 else 1


def blocks_of_rows(
    window: Window, unit: VectorUnit, lanes: int
) -> Iterator[tuple[Table, int, bool, tuple[Expr, Expr | int]]]:
    """(place of the first, rows, whether all taps are inside, (first, size) of the channels) of all
    rows that are computed together, shared out among threads.
    """
    together = rows_together(window, unit)
    worth = is_parallel_profitable(window.anchored.anchor)
    if together == 1:
        parts = _parts(window, unit)
        size = require_int(window.channels.extent) // parts
        for at, part in share_positions(window.rows, const(parts), worth):
            yield at, 1, False, (part * size, size)
        return
    inner = window.inner_rows
    assert inner is not None
    low, high = let("row0", inner[0]), let("row1", tirx.max(inner[1], inner[0]))
    row = window.rows[-1]
    for at, (start, end), channels in _tasks(window, low, lanes, worth):
        above = let("above", tirx.min(tirx.max(low, start), end))
        pairs = let("pairs", tirx.max(tirx.min(high, end) - above, 0) // together)
        below = let("below", above + pairs * together)
        runs = (start, above - start, 1), (above, pairs, together), (below, end - below, 1)
        for begin, count, each in runs:
            with serial(count, row.var.name) as i:
                place = {**at, row.var: let("y", begin + i * each)}
                yield place, each, each > 1, channels


def _tasks(
    window: Window, low: Expr, lanes: int, worth: Expr | bool
) -> Iterator[tuple[Table, tuple[Expr, Expr], tuple[Expr, Expr | int]]]:
    """(place around the rows, (first row, end), (first, size) of the channels) of every task.

    low: the first row that is computed together with the next one.
    """
    *around, row = window.rows
    channels, columns = require_int(window.channels.extent), window.column.extent
    images = multiply_extents(extents_of(around))
    # Tasks end where rows that are computed together do.
    units = let_opaque("units", tirx.max(tirx.ceildiv(row.extent - low, ROWS), 1))
    wanted = tirx.max(tirx.ceildiv(units, TASK_ROWS // ROWS), LEAST_TASKS)
    cuts = let_opaque("cuts", tirx.min(units, wanted))
    row_blocks = let("blocks", images * cuts)
    vectors, rest = divmod(channels, lanes)
    wanted = tirx.ceildiv(LEAST_TASKS, tirx.max(row_blocks, 1))
    wanted = tirx.max(wanted, -(-vectors // MOST_VECTORS))
    groups = const(1) if rest else let_opaque("groups", tirx.min(wanted, vectors))
    # By rows where the matmul in front, of a sixth of the channels mostly, has tasks by rows too.
    places = images * row.extent * columns * (window.steps[0] * window.steps[1])
    by_rows = places >= max(channels // 7, 64)
    for task in share_out(row_blocks * groups, worth):
        inside = let("inside", either(by_rows, groups, row_blocks))
        outer, inner = tirx.truncdiv(task, inside), tirx.truncmod(task, inside)
        block = let("block", either(by_rows, outer, inner))
        cut = let("cut", tirx.truncmod(block, cuts))
        start = let("start", tirx.Select(cut > 0, _edge(low, units, cuts, cut), const(0)))
        end = let("end", tirx.min(_edge(low, units, cuts, cut + 1), row.extent))
        at = let_all(position_of(around, tirx.truncdiv(block, cuts)))
        if rest:
            yield at, (start, end), (const(0), channels)
            continue
        group = let("group", either(by_rows, inner, outer))
        first = let("first", tirx.truncdiv(group * vectors, groups) * lanes)
        following = tirx.truncdiv((group + 1) * vectors, groups) * lanes
        yield at, (start, end), (first, let("size", following - first))


def _edge(low: Expr, units: Expr, cuts: Expr, cut: Expr) -> Expr:
    """The first row of a part of the rows."""
    return low + tirx.truncdiv(units * cut, cuts) * ROWS


def _parts(window: Window, unit: VectorUnit) -> int:
    """Into how many tasks to cut the channels of a row: an image of one row, such as a spectrogram
    after its first layers, has no other rows to share out.
    """
    channels, lanes = require_int(window.channels.extent), unit.lanes(32)
    if len(window.rows) > 1:
        return 1
    # In whole vectors, so that no task has channels left over.
    whole = [parts for parts in range(1, MOST_PARTS + 1) if channels % (parts * lanes) == 0]
    return max(whole, default=1)
