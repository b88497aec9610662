"""The kernel of 3x3 convolutions in Winograd's form F(4x4, 3x3).

A task is a block of tiles of 4x4 results. Loop order in a task: every tile's 6x6 inputs are
transformed into 36 points; at every point, a matmul of tiles x channels by the transformed weights;
every tile's results are transformed back. Both scratch buffers of a block about fill L2, so that
nothing between the input and the results goes through memory.

In the matmuls registers hold the accumulators of 4 tiles by one panel of columns, and the panel's
weights stay in L1 over all tiles of the block.
"""

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import POINTS, strip_of
from compiler.passes.cpu.families.winograd.transform import transform_input, transform_output
from compiler.passes.cpu.shared.prefetching import prefetch_between
from compiler.passes.cpu.shared.sharing import computed_once, extents_of, place_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    let,
    let_all,
    let_opaque,
    serial,
    share_out,
    statements,
    steps,
    store,
    tile,
)
from compiler.tir.exprs import Expr, Table, const, load
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, product
from compiler.tir.stages import Axis

ROWS = 4
"""Tiles of a register tile in the matmuls; blocks are multiples of it, so no rest is needed."""

FETCH = 4
"""Register tiles that prefetch the whole of the next panel of weights."""


def tiles_of(unit: VectorUnit, depth: int, columns: int) -> int:
    """Tiles of a block at most: both scratch buffers about fill L2, within 12 to 32 tiles."""
    room = unit.l2 // (4 * POINTS * (depth + columns))
    return min(max(room // ROWS * ROWS, 3 * ROWS), 8 * ROWS)


def describe_tile(winograd: Winograd, unit: VectorUnit) -> str:
    """The results of a tile, and how many tiles a block has."""
    return f"4x4 results, {tiles_of(unit, winograd.depth, winograd.padded)} tiles a block"


def emit_winograd(winograd: Winograd, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each a block of tiles."""
    source, anchor = winograd.source, winograd.anchored.anchor
    with statements() as body:
        for stmt in winograd.anchored.flat.prelude:
            emit(stmt)
        axes = computed_once((*source.spatial[:3], *anchor.spatial[1:3]))
        tile_axes, size = axes[:3], extents_of(axes[3:])
        tiles = let_opaque("tiles", product(extents_of(tile_axes)))
        # The transforms are left out: they are little beside the matmuls.
        work = tiles * (2 * POINTS * winograd.depth * winograd.columns)
        each = let("each", _block_size(winograd, unit, tiles))
        blocks = let("blocks", tirx.ceildiv(tiles, each))
        for task in share_out(blocks, work >= PARALLEL_FLOPS):
            count = let("count", tirx.min(each, tiles - task * each))
            _emit_block(winograd, unit, tile_axes, size, task * each, count)
    return body.stmt


def _block_size(winograd: Winograd, unit: VectorUnit, tiles: Expr) -> Expr:
    """Tiles of a block: about equally many in each."""
    most = tiles_of(unit, winograd.depth, winograd.padded)
    # At least two blocks where there are tiles for them, so that small images keep two threads
    # busy.
    two = tirx.min(2, tirx.ceildiv(tiles, ROWS))
    blocks = tirx.max(tirx.ceildiv(tiles, most), two)
    each = tirx.ceildiv(tirx.ceildiv(tiles, tirx.max(blocks, 1)), ROWS) * ROWS
    return tirx.max(each, ROWS)


def _emit_block(
    winograd: Winograd,
    unit: VectorUnit,
    axes: tuple[Axis, ...],
    size: list[Expr],
    first: Expr,
    count: Expr,
) -> None:
    """`count` tiles from `first` on; axes: of the tiles, by which they are numbered."""
    lanes, most = unit.lanes(32), tiles_of(unit, winograd.depth, winograd.padded)
    spread = alloc([POINTS * most * winograd.depth], "float32", "spread", "global")
    summed = alloc([POINTS * most * winograd.padded], "float32", "summed", "global")
    for t, at in _tiles(axes, first, count):
        transform_input(winograd, strip_of(winograd.depth, lanes), spread, most, t, at)
    # Point by point, so that each point's weights are read once for all tiles of the block: the
    # weights of one point fit L2, all 36 seldom do.
    with serial(POINTS, "point") as point:
        _emit_matmul(winograd, unit, spread, summed, point, count)
    for t, at in _tiles(axes, first, count):
        transform_output(winograd, strip_of(winograd.columns, lanes), summed, most, t, at, size)


def _tiles(axes: tuple[Axis, ...], first: Expr, count: Expr) -> Iterator[tuple[Expr, Table]]:
    """(number in the block, place in the image) of every tile of a block."""
    with serial(count, "tile") as t:
        yield t, let_all(place_of(axes, first + t))


def _emit_matmul(
    winograd: Winograd, unit: VectorUnit, spread: Any, summed: Any, point: Expr, count: Expr
) -> None:
    """summed[point] = spread[point] @ weights[point] for the tiles of a block."""
    depth, width, padded = winograd.depth, winograd.width, winograd.padded
    lanes, most = unit.lanes(32), tiles_of(unit, depth, padded)
    panels = padded // width
    with serial(panels, "panel") as p:
        panel = (point * panels + p) * depth
        with serial(tirx.ceildiv(count, ROWS), "rows") as index:
            # The last rows may hold no tile; their results are never read.
            row = point * most + index * ROWS
            acc = alloc([ROWS, width], "float32", "acc")
            for i, lane in tile(ROWS, width, lanes):
                store(acc, 0, i, lane)
            between = None
            if unit.outruns_cache:
                # The panels of a point follow those of the point before it.
                following = (panel + depth) * width
                between = prefetch_between(
                    unit, winograd.weights, following, width, const(depth), index, FETCH
                )
            for k in steps(depth, unit.together, between=between):
                for i, lane in tile(ROWS, width, lanes):
                    left = load(spread, [(row + i) * depth + k])
                    right = load(winograd.weights, [(panel + k) * width + lane])
                    store(acc, load(acc, [i, lane]) + left * right, i, lane)
            for i, lane in tile(ROWS, width, lanes):
                store(summed, load(acc, [i, lane]), (row + i) * padded + p * width + lane)
