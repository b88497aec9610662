"""The kernel of sliding windows over images with channels last: depthwise convolution and pooling.

Loop order: rows of the result over the threads; along a row first the columns at the left border,
one by one with each tap behind its condition, then those whose window lies wholly inside the image,
several together without conditions, then those at the right border; per column the channels, one
vector at a time; innermost the window. The accumulators of the columns that are computed together
stay in registers over the whole window, so each weight is loaded once for all of them.
"""

from collections.abc import Iterator

from tvm import tirx

from compiler.passes.cpu.families.pooling.match import Window
from compiler.passes.cpu.shared.loop_nest import lanes_for
from compiler.passes.cpu.shared.sharing import share_places, worth_sharing
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    blocks,
    emit,
    fresh,
    let,
    nest,
    serial,
    statements,
    store,
    tile,
    when,
)
from compiler.tir.exprs import Expr, Table, const, dtype_of, fixed, load, substitute
from compiler.tir.loops import Stmt

COLUMNS = 4
"""Columns computed together: each weight that is loaded serves so many accumulators, whose
additions take turns in the pipeline.
"""

MANY_TAPS = 8
"""Taps along a row from which on twice as many columns are computed together."""

MOST_PARTS = 8
"""Tasks into which the channels of a single row are cut at most."""


def emit_window(window: Window, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    parts = _parts(window, unit)
    size = fixed(window.channels.extent) // parts
    worth = worth_sharing(window.anchored.anchor)
    with statements() as body:
        for stmt in window.anchored.flat.prelude:
            emit(stmt)
        # Both ends are divisions of dims, needed in every row.
        first = fresh("first", window.first)
        last = fresh("last", tirx.max(window.last, window.first))
        for at, part in share_places(window.rows, const(parts), worth):
            for column, count, inside in _columns(window, unit, first, last):
                here = {**at, window.column.var: let("x", column)}
                for start, width in blocks(size, lanes_for(window.anchored.anchor, unit)):
                    channels = (part * size + start, width)
                    _emit_block(window, here, count, inside, channels)
    return body.stmt


def _parts(window: Window, unit: VectorUnit) -> int:
    """Into how many tasks to cut the channels of a row: an image of one row, such as a spectrogram
    after its first layers, has no other rows to share out.
    """
    channels, lanes = fixed(window.channels.extent), unit.lanes(32)
    if len(window.rows) > 1:
        return 1
    # In whole vectors, so that no task has channels left over.
    whole = [parts for parts in range(1, MOST_PARTS + 1) if channels % (parts * lanes) == 0]
    return max(whole, default=1)


def columns_together(window: Window, unit: VectorUnit) -> int:
    """How many neighbouring columns are computed at once."""
    # Eight accumulators with a weight and a tap beside them take 10 of 16 registers.
    wide = fixed(window.taps.extent) >= MANY_TAPS and unit.registers >= 16
    return COLUMNS * (2 if wide else 1)


def _columns(
    window: Window, unit: VectorUnit, first: Expr, last: Expr
) -> Iterator[tuple[Expr, int, bool]]:
    """(column, count, whether all taps are inside) for all columns of a row, from left to right."""
    together = columns_together(window, unit)
    if window.column_inside:
        with serial(first, "column") as i:
            yield i, 1, False
    many = (last - first) // together
    with serial(many, "columns") as i:
        yield first + i * together, together, True
    # Fewer columns than are computed together: one by one, still without conditions.
    rest = first + many * together
    with serial(last - rest, "column") as i:
        yield rest + i, 1, True
    if window.column_inside:
        with serial(window.column.extent - last, "column") as i:
            yield last + i, 1, False


def _emit_block(
    window: Window, at: Table, count: int, inside: bool, channels: tuple[Expr, int]
) -> None:
    """Emit `count` columns from `at` on by one vector of channels, (first, width), over the window.

    inside: whether every tap is inside the image along the row.
    """
    sums = alloc([count, channels[1]], dtype_of(window.init), "sums")
    for i, lane, here in _results(window, at, count, channels):
        store(sums, substitute(window.init, here), i, lane)
    for line in nest(window.outer, at):
        # Rows beside the image are left out for all taps at once, in the interior too: that costs a
        # comparison a row of taps, where tasks of their own would be code twice.
        with when(_all(window.row_inside, line)):
            for tap in nest([window.taps], line):
                with when(inside or _all(window.column_inside, tap)):
                    for i, lane, here in _results(window, tap, count, channels):
                        window.combine.into(sums, here, i, lane)
    for i, lane, here in _results(window, at, count, channels):
        window.anchored.epilogue.store(load(sums, [i, lane]), here)


def _results(
    window: Window, at: Table, count: int, channels: tuple[Expr, int]
) -> Iterator[tuple[int, Expr, Table]]:
    """(number of the column, lane, place) of every result of a block."""
    first, width = channels
    for i, lane in tile(count, width, width):
        column = at[window.column.var] + i
        yield i, lane, {**at, window.column.var: column, window.channels.var: first + lane}


def _all(conditions: tuple[Expr, ...], at: Table) -> Expr | bool:
    """Whether all the conditions hold at the place."""
    if not conditions:
        return True
    return tirx.all(*(substitute(condition, at) for condition in conditions))
