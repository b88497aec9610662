"""The kernel of sliding windows over images with channels last: depthwise convolution and pooling.

Loop order: rows of the result over the threads, two at once if registers hold the weights of the
window beside their accumulators; along a row first the columns at the left border, one by one with
a condition for each tap, then those whose window is inside the image, several at once without
conditions (one, where windows do not overlap: memory is read in order then), then those at the
right border; per column the channels, one vector at a time; innermost the window. The accumulators
of the columns of a block stay in registers over the whole window, so that each weight is loaded
once for all of them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.pooling import plan
from compiler.passes.cpu.families.pooling.depthwise_bytes import emit_bytes, read_bytes
from compiler.passes.cpu.families.pooling.match import Window
from compiler.passes.cpu.families.pooling.tiling import blocks_of_rows, rows_at_once
from compiler.passes.cpu.shared.loop_nest import lanes_for
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
    vectorize,
    when,
)
from compiler.tir.exprs import (
    Expr,
    Table,
    const,
    dtype_of,
    load,
    replace_loads,
    require_int,
    substitute,
)
from compiler.tir.flat import stride
from compiler.tir.loops import Stmt


def emit_window(window: Window, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    in_bytes = read_bytes(window, unit)
    if in_bytes is not None:
        return emit_bytes(in_bytes)
    with statements() as body:
        for stmt in window.anchored.flat.prelude:
            emit(stmt)
        # Both ends are divisions of dims, used in every row.
        first = fresh("first", window.first)
        last = fresh("last", tirx.max(window.last, window.first))
        lanes = lanes_for(window.anchored.anchor, unit)
        for position, height, within, (start, size) in blocks_of_rows(window, unit, lanes):
            for column, count, inside in _columns(window, unit, first, last):
                here = {**position, window.column.var: let("x", column)}
                for block, width in _vectors(size, lanes):
                    channels = (start + block, width)
                    _emit_block(window, here, (height, count), (within, inside), channels)
    return body.stmt


def _vectors(size: Expr | int, lanes: int) -> Iterator[tuple[Expr, int]]:
    """(first, width) of every vector of channels, full ones if their number is not known."""
    if isinstance(size, int):
        yield from blocks(size, lanes)
        return
    with serial(size // lanes, "vector") as i:
        yield i * lanes, lanes


def columns_at_once(window: Window, unit: VectorUnit) -> int:
    """The number of neighbouring columns that are computed at once."""
    if _reads_once(window) and require_int(window.channels.extent) > unit.lanes(32):
        return 1  # then the next vector of channels, which follows in memory
    # Eight accumulators with a weight and a tap beside them take 10 of 16 registers.
    wide = require_int(window.taps.extent) >= plan.MANY_TAPS and unit.registers >= 16
    return plan.COLUMNS * (2 if wide else 1)


def _reads_once(window: Window) -> bool:
    """True if neighbouring windows do not overlap: no load is shared by several columns."""
    return window.steps[1] >= require_int(window.taps.extent)


def describe_tile(window: Window, unit: VectorUnit) -> str:
    """The rows and columns that are computed at once."""
    rows, columns = rows_at_once(window, unit), columns_at_once(window, unit)
    return f"{f'{rows} rows of ' if rows > 1 else ''}{columns} columns by one vector"


def _columns(
    window: Window, unit: VectorUnit, first: Expr, last: Expr
) -> Iterator[tuple[Expr, int, bool]]:
    """(column, count, True if all taps are inside) for all columns of a row, from left to right."""
    unroll = columns_at_once(window, unit)
    if window.column_inside:
        with serial(first, "column") as i:
            yield i, 1, False
    many = (last - first) // unroll
    with serial(many, "columns") as i:
        yield first + i * unroll, unroll, True
    # The rest of them: one by one, still without conditions.
    rest = first + many * unroll
    with serial(last - rest, "column") as i:
        yield rest + i, 1, True
    if window.column_inside:
        with serial(window.column.extent - last, "column") as i:
            yield last + i, 1, False


def _emit_block(
    window: Window,
    position: Table,
    size: tuple[int, int],
    inside: tuple[bool, bool],
    channels: tuple[Expr, int],
) -> None:
    """Emit `size`, (rows, columns), from `position` on by one vector of channels, (first, width).

    inside: True if every tap is inside the image across its rows, and along them.
    """
    acc = alloc([size[0] * size[1], channels[1]], dtype_of(window.init), "sums")
    for i, lane, result in _results(window, position, size, channels):
        store(acc, substitute(window.init, result), i, lane)
    if size[0] > 1 and all(inside):
        _emit_taps(window, position, size, channels, acc)
    else:
        # Rows outside of the image are skipped for all taps at once, in the interior too: that is a
        # comparison for each row of taps, where separate tasks would double the code.
        for line in nest(window.outer, position):
            with when(inside[0] or _all_hold(window.row_inside, line)):
                for tap in nest([window.taps], line):
                    with when(inside[1] or _all_hold(window.column_inside, tap)):
                        for i, lane, result in _results(window, tap, size, channels):
                            window.combine.into(acc, result, i, lane)
    for i, lane, result in _results(window, position, size, channels):
        window.anchored.epilogue.store(load(acc, [i, lane]), result)


def _emit_taps(
    window: Window, position: Table, size: tuple[int, int], channels: tuple[Expr, int], acc: Any
) -> None:
    """Emit every tap of every result, in the order of the image's elements: LLVM loads each once
    for all results that use it, if its address is the same for all of them.
    """
    (down, along), (first, width) = window.steps, channels
    taps = [require_int(axis.extent) for axis in (*window.outer, window.taps)]
    height, across = taps if window.outer else (1, *taps)
    image, corner = window.image, {axis.var: const(0) for axis in (*window.outer, window.taps)}
    assert image is not None
    index, step = image.indices[0], stride(image.indices[0], window.taps.var)
    assert step is not None
    begin = fresh("place", substitute(index, {**position, **corner, window.channels.var: first}))
    line_stride = stride(index, window.outer[0].var) if window.outer else const(0)
    assert line_stride is not None
    lines = [
        fresh(f"line{i}", begin + line_stride * i) for i in range((size[0] - 1) * down + height)
    ]
    results = itertools.product(range(size[0]), range(size[1]), range(height), range(across))
    for line, column, i, j in sorted(
        (i * down + kh, j * along + kw, i, j) for i, j, kh, kw in results
    ):
        with vectorize(width) as lane:
            tap = {
                **{axis.var: const(line - i * down) for axis in window.outer},
                window.taps.var: const(column - j * along),
                window.channels.var: first + lane,
            }
            read = load(image.source, [lines[line] + (step * column + lane)])
            term = replace_loads(window.combine.term, image.source, read)
            combine = replace(window.combine, term=term)
            combine.into(acc, {**position, **tap}, i * size[1] + j, lane)


def _results(
    window: Window, position: Table, size: tuple[int, int], channels: tuple[Expr, int]
) -> Iterator[tuple[int, Expr, Table]]:
    """(number, lane, position) of every result of a block."""
    first, width = channels
    for i, lane in tile(size[0] * size[1], width, width):
        row, column = divmod(i, size[1])
        moved = {window.column.var: position[window.column.var] + column}
        if row:
            moved[window.rows[-1].var] = position[window.rows[-1].var] + row
        yield i, lane, {**position, **moved, window.channels.var: first + lane}


def _all_hold(conditions: tuple[Expr, ...], position: Table) -> Expr | bool:
    """The conjunction of the conditions at a position."""
    if not conditions:
        return True
    return tirx.all(*(substitute(condition, position) for condition in conditions))
