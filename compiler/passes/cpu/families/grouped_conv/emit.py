"""The kernel of convolutions over images that are padded already, of any rank, in groups or not.

Loop order: some places by a range of panels over the threads; in a task panel after panel, so that
a panel's weights stay in L1 while the task's places pass; per panel tiles of a few places, whose
accumulators stay in registers over the whole window. The window is read where it lies, at an offset
from the place's first element. Results wait in scratch memory in L2 until all panels of a place are
done; then bias, activation and whatever else was fused are applied, place by place.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.grouped_conv.tiling import Tiling, tiling_for
from compiler.passes.cpu.shared.chunks import add_chunk, over_chunks
from compiler.passes.cpu.shared.windowed import PanelConv, begin
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    fresh,
    serial,
    share_out,
    statements,
    store,
    strips,
    tile,
)
from compiler.tir.exprs import Expr, as_int, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, hide_count, some_of

UNROLL = 16
"""Channels of a block up to which the loop over them is unrolled; with more of them its counter
costs little beside the tile.
"""


def emit_grouped_conv(conv: PanelConv, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    tiling = tiling_for(conv, unit)
    shares = -(-tiling.total // tiling.share)
    # Several extents that are not known are those of images, whose places are many.
    images = [as_int(axis.extent) for axis in conv.rows].count(None) > 1
    with statements() as body:
        known, m = begin(conv)
        work = m * (2 * tiling.depth * tiling.width * tiling.total)
        worth = images or work >= PARALLEL_FLOPS
        for task in share_out(tirx.ceildiv(m, tiling.places) * shares, worth):
            first = task // shares * tiling.places
            _emit_task(known, tiling, unit, m, first, task % shares * tiling.share)
    return body.stmt


def _emit_task(
    conv: PanelConv, tiling: Tiling, unit: VectorUnit, m: Expr, first: Expr, panel: Expr
) -> None:
    """Emit some places by some panels, from number `first` and number `panel` on."""
    bases = alloc([tiling.places], "int64", "bases")
    size = tiling.places * tiling.share * tiling.width
    sums = alloc([size], "float32", "sums", "global")
    with serial(tiling.places) as r:
        # Places past the end are clamped, so that all tiles are whole; they are not written back.
        at = conv.emit_position(tirx.min(first + r, m - 1))
        store(bases, substitute(conv.origin, at), r)
    count = tirx.min(tiling.places, m - first)
    panels = some_of(tiling.total, tiling.share, panel)
    # Panels outside and tiles inside: a panel is read from L2 once, then from L1 for each tile.
    with serial(panels, "panel") as p:
        with serial(tirx.ceildiv(count, tiling.height), "tile") as t:
            _emit_tile(conv, tiling, unit, m, (bases, sums), t * tiling.height, (panel, p))
    _emit_results(conv, tiling, unit, sums, (first, count), (panel, panels))


def _emit_tile(
    conv: PanelConv,
    tiling: Tiling,
    unit: VectorUnit,
    m: Expr,
    scratch: tuple[Any, Any],
    row: Expr,
    panels: tuple[Expr, Expr],
) -> None:
    """Emit the places from `row` on by one panel, over the whole window.

    scratch: the places' offsets, and the results; panels: the task's first, and which one from
    there.
    """
    (bases, sums), panel = scratch, panels[0] + panels[1]
    lanes, channels = min(unit.lanes(32), tiling.width), tiling.channels
    acc = alloc([tiling.height, tiling.width], "float32", "acc")
    # The panels of one block read the same channels, those of the next the channels after them.
    channel = panel // tiling.panels * channels
    places = [fresh(f"a{i}", load(bases, [row + i]) + channel) for i in range(tiling.height)]
    axes = (*conv.window, conv.along)
    unroll = channels if channels <= UNROLL else 1
    cells = partial(tile, tiling.height, tiling.width, lanes)

    # Variables, as TVM stores whole vectors only from a place that is one: else number by number.
    starts = [
        fresh(f"s{i}", ((row + i) * tiling.share + panels[1]) * tiling.width)
        for i in range(tiling.height)
    ]

    def results() -> Iterator[tuple[Expr, Expr]]:
        for i, lane in cells():
            yield load(acc, [i, lane]), starts[i] + lane

    # LLVM unrolls the small known extents of a window completely, which takes it seconds.
    for number, chunk in over_chunks(axes, unroll, lambda extent: hide_count(extent, m)):
        for i, lane in cells():
            store(acc, 0, i, lane)
        for at in chunk():
            (position, moved), c = conv.within_window(at), at[conv.along.var]
            weight = (panel * tiling.depth + position * channels + c) * tiling.width
            for i, lane in cells():
                given = load(conv.source, [places[i] + moved + c])
                term = given * load(conv.weights, [weight + lane])
                store(acc, load(acc, [i, lane]) + term, i, lane)
        add_chunk(sums, number, results)


def _emit_results(
    conv: PanelConv,
    tiling: Tiling,
    unit: VectorUnit,
    sums: Any,
    places: tuple[Expr, Expr],
    panels: tuple[Expr, Expr],
) -> None:
    """Emit what was fused behind the convolution, place by place, over (first, count) of both."""
    blocks = panels[1] // tiling.panels if tiling.panels > 1 else panels[1]
    with serial(places[1], "row") as r:
        at = conv.epilogue.rows_at(conv.rows, places[0] + r)
        with serial(blocks, "block") as b:
            start = (r * tiling.share + b * tiling.panels) * tiling.width
            column = (panels[0] // tiling.panels + b) * tiling.columns
            # The last panel of a block may be wider than what is left of its columns.
            for j in strips(tiling.columns, unit.lanes(32)):
                here = {**at, conv.column.var: column + j}
                conv.epilogue.store(load(sums, [start + j]), here)
