"""The kernel of 3x3 convolutions in Winograd's form F(4x4, 3x3).

A task is a block of tiles of 4x4 results by all columns, or some of them. Loop order in a task:
every tile's 6x6 inputs are transformed into 36 points; at every point, a matmul of tiles x channels
by the transformed weights; every tile's results are transformed back. Both scratch buffers of a
block about fill L2, so that intermediate results do not go through memory.

In the matmuls registers hold the accumulators of 4 or 8 tiles by one panel of columns, and the
panel's weights stay in L1 over all tiles of the block. Many channels are accumulated in chunks,
which has a smaller rounding error than one long sum.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.winograd import plan
from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import POINTS, strip_of
from compiler.passes.cpu.families.winograd.tasks import Part, share_tasks
from compiler.passes.cpu.families.winograd.tile import (
    chunk_of,
    most_column_tiles,
    sizes_of,
    tiles_of,
)
from compiler.passes.cpu.families.winograd.transform import (
    Points,
    transform_input,
    transform_output,
)
from compiler.passes.cpu.shared.prefetching import prefetch_between
from compiler.passes.cpu.shared.register_tile import least
from compiler.passes.cpu.shared.sharing import bind_extents, extents_of, position_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    let,
    let_all,
    let_opaque,
    serial,
    statements,
    steps,
    store,
    tile,
)
from compiler.tir.exprs import Expr, Table, as_int, const, either, load
from compiler.tir.loops import Stmt, multiply_extents
from compiler.tir.stages import Axis


def describe_tile(winograd: Winograd, unit: VectorUnit) -> str:
    """The results of a tile, and the tiles of a block."""
    return f"4x4 results, {tiles_of(unit, winograd.depth, winograd.padded)} tiles a block"


def emit_winograd(winograd: Winograd, unit: VectorUnit) -> Stmt:
    """The body of the kernel, in tasks of some tiles by some panels of columns."""
    source, anchor = winograd.source, winograd.anchored.anchor
    with statements() as body:
        for stmt in winograd.anchored.flat.prelude:
            emit(stmt)
        axes = bind_extents((*source.spatial[:3], *anchor.spatial[1:3]))
        tiles = let_opaque("tiles", multiply_extents(extents_of(axes[:3])))
        block = _Block(winograd, unit, axes[:3], extents_of(axes[3:]))
        for block_tiles, panels in share_tasks(winograd, unit, tiles):
            block.emit(block_tiles, panels)
    return body.stmt


class _Block:
    """Some tiles by some panels; axes: of the tiles, by which they are numbered; size: rows and
    columns of the results.
    """

    def __init__(
        self, winograd: Winograd, unit: VectorUnit, axes: tuple[Axis, ...], size: list[Expr]
    ) -> None:
        self.winograd, self.unit, self.axes, self.size = winograd, unit, axes, size
        most = tiles_of(unit, winograd.depth, winograd.padded)
        self.most = max(most, most_column_tiles(winograd, unit))

    def emit(self, tiles: Part, panels: Part) -> None:
        """Emit the tiles, (first, count), by the panels."""
        winograd, lanes = self.winograd, self.unit.lanes(32)
        spread = Points.alloc("spread", self.most, winograd.depth)
        summed = Points.alloc("summed", self.most, winograd.padded)
        for t, position in _tiles(self.axes, *tiles):
            transform_input(winograd, strip_of(winograd.depth, lanes), spread, t, position)
        # Point by point, so that each point's weights are read once for all tiles of the block: the
        # weights of one point fit into L2, those of all 36 rarely do.
        with serial(POINTS, "point") as point, serial(panels[1], "some_panel") as index:
            every, p = winograd.padded // winograd.width, let("panel", panels[0] + index)
            # The last panel of a point is followed by the first one of the next.
            ahead = either(index + 1 < panels[1], const(1), every - panels[1] + 1)
            panel = point * every + p
            for number, rows in _register_tiles(self.unit, tiles[1]):
                row = number * sizes_of(self.unit)[-1]
                left = (spread.buffer, spread.index(point, row))
                right = (panel, let("next_panel", panel + ahead), number)
                for begin in _chunks(winograd.depth):
                    acc = _emit_matmul(winograd, self.unit, rows, left, right, begin)
                    for i, lane in tile(rows, winograd.width, lanes):
                        at_lane = summed.index(point, row + i) + p * winograd.width + lane
                        value = load(acc, [i, lane])
                        if as_int(begin) != 0:
                            value = load(summed.buffer, [at_lane]) + value
                        store(summed.buffer, value, at_lane)
        strip = strip_of(winograd.columns, lanes)
        for t, position in _tiles(self.axes, *tiles):
            columns = (panels[0] * winograd.width, panels[1] * winograd.width)
            transform_output(winograd, strip, summed, t, position, self.size, columns)


def _tiles(axes: tuple[Axis, ...], first: Expr, count: Expr) -> Iterator[tuple[Expr, Table]]:
    """(number in the block, position in the image) of every tile of a block."""
    with serial(count, "tile") as t:
        yield t, let_all(position_of(axes, first + t))


def _register_tiles(unit: VectorUnit, count: Expr) -> Iterator[tuple[Expr, int]]:
    """(number, rows) of every register tile of a block; the last rows may be no tiles, whose
    results are not read.
    """
    sizes = sizes_of(unit)
    with serial(tirx.ceildiv(count, sizes[-1]), "rows") as number:
        for rows in least(sizes, count - number * sizes[-1]):
            yield number, rows


def _chunks(depth: int) -> Iterator[Expr]:
    """The first channel of every chunk: 0, then in a loop those of the others."""
    chunk = chunk_of(depth)
    yield const(0)
    if chunk < depth:
        with serial(depth // chunk - 1, "chunk") as index:
            yield let("begin", (index + 1) * chunk)


def _emit_matmul(
    winograd: Winograd,
    unit: VectorUnit,
    rows: int,
    left: tuple[Any, Expr],
    right: tuple[Expr, Expr, Expr],
    begin: Expr,
) -> Any:
    """Emit rows of transformed inputs by a panel of weights; return the accumulators [rows, width]
    over the channels of the chunk from `begin` on.

    left: a buffer, and the index in it of the first row; right: numbers of the panel, of the next
    one, which is prefetched, and of the register tile.
    """
    depth, width, lanes = winograd.depth, winograd.width, unit.lanes(32)
    (spread, first), (panel, following, number) = left, right
    acc = alloc([rows, width], "float32", "acc")
    for i, lane in tile(rows, width, lanes):
        store(acc, 0, i, lane)
    between: Callable[[Expr], None] | None = None
    if unit.memory_bound:
        upcoming, tiles = following * (depth * width), plan.FETCH // sizes_of(unit)[-1]
        prefetch = prefetch_between(
            unit, winograd.weights, upcoming, width, const(depth), number, tiles
        )
        earlier = tirx.truncdiv(begin, const(unit.unroll))

        def between(group: Expr) -> None:
            prefetch(earlier + group)

    for k in steps(const(chunk_of(depth)), unit.unroll, between=between):
        for i, lane in tile(rows, width, lanes):
            value = load(spread, [first + i * depth + begin + k])
            weight = load(winograd.weights, [(panel * depth + begin + k) * width + lane])
            store(acc, load(acc, [i, lane]) + value * weight, i, lane)
    return acc
