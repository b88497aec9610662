"""The kernel of convolutions over padded images, of any rank, in groups or not.

Loop order: some positions by a range of panels over the threads; in a task panel after panel, so
that a panel's weights stay in L1 over the task's positions; per panel tiles of a few positions,
whose accumulators stay in registers over the whole window. The window is read in place, at an
offset from the position's first element. Results are in scratch memory in L2 until all panels of a
position are computed; then the epilogue is applied, position by position.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.grouped_conv import plan
from compiler.passes.cpu.families.grouped_conv.plan import Tiling, tiling_for
from compiler.passes.cpu.shared.chunks import add_chunk, over_chunks
from compiler.passes.cpu.shared.windowed import PanelConv, begin
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    fresh,
    parallel,
    serial,
    statements,
    store,
    strips,
    tile,
)
from compiler.tir.exprs import Expr, as_int, dtype_of, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, hide_count, some_of


def emit_grouped_conv(conv: PanelConv, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    tiling = tiling_for(conv, unit)
    shares = -(-tiling.total // tiling.share)
    # Several extents that are not known are those of images, which have many positions.
    images = [as_int(axis.extent) for axis in conv.rows].count(None) > 1
    with statements() as body:
        known, m = begin(conv)
        work = m * (2 * tiling.depth * tiling.width * tiling.total)
        parallel_if = images or work >= PARALLEL_FLOPS
        with parallel(tirx.ceildiv(m, tiling.positions) * shares, parallel_if) as task:
            first = task // shares * tiling.positions
            _emit_task(known, tiling, unit, m, first, task % shares * tiling.share)
    return body.stmt


def _emit_task(
    conv: PanelConv, tiling: Tiling, unit: VectorUnit, m: Expr, first: Expr, panel: Expr
) -> None:
    """Emit some positions by some panels, from number `first` and number `panel` on."""
    bases = alloc([tiling.positions], "int64", "bases")
    size = tiling.positions * tiling.share * tiling.width
    results = alloc([size], "float32", "sums", "global")
    with serial(tiling.positions) as r:
        # Positions past the end are clamped, so that all tiles are full; they are not stored.
        position = conv.emit_position(tirx.min(first + r, m - 1))
        store(bases, substitute(conv.origin, position), r)
    count = tirx.min(tiling.positions, m - first)
    panels = some_of(tiling.total, tiling.share, panel)
    # Panels are the outer loop: a panel is read from L2 once, then from L1 for each tile.
    with serial(panels, "panel") as p:
        with serial(tirx.ceildiv(count, tiling.height), "tile") as t:
            _emit_tile(conv, tiling, unit, m, (bases, results), t * tiling.height, (panel, p))
    _emit_results(conv, tiling, unit, results, (first, count), (panel, panels))


def _emit_tile(
    conv: PanelConv,
    tiling: Tiling,
    unit: VectorUnit,
    m: Expr,
    scratch: tuple[Any, Any],
    row: Expr,
    panels: tuple[Expr, Expr],
) -> None:
    """Emit the positions from `row` on by one panel, over the whole window.

    scratch: the positions' offsets, and the results; panels: the task's first one, and the number
    of this one from there.
    """
    (bases, results), panel = scratch, panels[0] + panels[1]
    lanes, channels = min(unit.lanes(32), tiling.width), tiling.channels
    acc = alloc([tiling.height, tiling.width], "float32", "acc")
    # The panels of one block read the same channels, those of the next the channels after them.
    channel = panel // tiling.panels * channels
    windows = [fresh(f"a{i}", load(bases, [row + i]) + channel) for i in range(tiling.height)]
    axes = (*conv.window, conv.along)
    unroll = channels if channels <= plan.UNROLL else 1
    cells = partial(tile, tiling.height, tiling.width, lanes)

    # Variables, as TVM stores full vectors only from an index that is one: else element by element.
    starts = [
        fresh(f"s{i}", ((row + i) * tiling.share + panels[1]) * tiling.width)
        for i in range(tiling.height)
    ]

    def tile_results() -> Iterator[tuple[Expr, Expr]]:
        for i, lane in cells():
            yield load(acc, [i, lane]), starts[i] + lane

    # LLVM unrolls the small known extents of a window completely, which takes it seconds.
    for number, chunk in over_chunks(axes, unroll, lambda extent: hide_count(extent, m)):
        for i, lane in cells():
            store(acc, 0, i, lane)
        for tap in chunk():
            (position, offset), c = conv.within_window(tap), tap[conv.along.var]
            weight = (panel * tiling.depth + position * channels + c) * tiling.width
            for i, lane in cells():
                element = load(conv.source, [windows[i] + offset + c])
                factor = load(conv.weights, [weight + lane])
                factor = factor if dtype_of(factor) == "float32" else factor.astype("float32")
                store(acc, load(acc, [i, lane]) + element * factor, i, lane)
        add_chunk(results, number, tile_results)


def _emit_results(
    conv: PanelConv,
    tiling: Tiling,
    unit: VectorUnit,
    results: Any,
    positions: tuple[Expr, Expr],
    panels: tuple[Expr, Expr],
) -> None:
    """Emit the epilogue, position by position, over (first, count) of positions and panels."""
    blocks = panels[1] // tiling.panels if tiling.panels > 1 else panels[1]
    with serial(positions[1], "row") as r:
        position = conv.epilogue.rows_at(conv.rows, positions[0] + r)
        with serial(blocks, "block") as b:
            start = (r * tiling.share + b * tiling.panels) * tiling.width
            column = (panels[0] // tiling.panels + b) * tiling.columns
            # The last panel of a block may be wider than what is left of its columns.
            for j in strips(tiling.columns, unit.lanes(32)):
                here = {**position, conv.column.var: column + j}
                conv.epilogue.store(load(results, [start + j]), here)
