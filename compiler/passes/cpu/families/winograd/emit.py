"""The Winograd kernel: blocks of tiles go through both transforms and the products between them
while they stay in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from compiler.passes.cpu.families.winograd.program import INPUT, OUTPUT, REACH, STAGES, TILE
from compiler.passes.cpu.shared.loop_nest import combine_of
from compiler.passes.cpu.shared.reduction import Anchored, read_anchored
from compiler.passes.cpu.shared.register_tile import along, products
from compiler.passes.cpu.shared.sharing import extents_of, place_of, with_extents
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, Table, const, fixed, is_choice, load, loads, nodes, substitute
from compiler.tir.flat import analyzer_for
from compiler.tir.loops import (
    PARALLEL_FLOPS,
    Stmt,
    allocate,
    bind,
    bind_all,
    bind_opaque,
    product,
    seq,
    serial,
    share_out,
    store,
    vectorized,
    when,
)
from compiler.tir.stages import Axis, Program, Stage

POINTS = REACH * REACH
ROWS = 4
"""Tiles whose products are summed together."""


@dataclass(frozen=True)
class Winograd:
    """inside, value: where a place of the input is not padding, and what is there, over the axes of
    `source`.

    weights: the flat buffer [36, panels, depth, width]; anchored: the results and what is done to
    them.
    """

    source: Stage
    inside: Expr
    value: Expr
    weights: Any
    depth: int
    columns: int
    width: int
    anchored: Anchored

    @property
    def padded(self) -> int:
        """Columns with the last panel's empty ones."""
        return -(-self.columns // self.width) * self.width


def read_winograd(program: Program) -> Winograd | None:
    """The program as `compiler.passes.cpu.families.winograd.program` writes it, with whatever was
    fused behind it; None if it is another.
    """
    if len(program.stages) < len(STAGES) or [stage.name for stage in program.stages[:3]] != list(
        STAGES
    ):
        return None
    source, summed = program.stages[:2]
    anchored = read_anchored(replace(program, stages=program.stages[2:]))
    terms = [combine_of(stage) for stage in (source, summed)]
    if (
        anchored is None
        or None in terms
        or not anchored.epilogue.in_vectors(anchored.anchor.spatial[-1].var)
    ):
        return None
    choice = next(node for node in nodes(terms[0].term) if is_choice(node))  # type: ignore[union-attr]
    analyzer = analyzer_for(source.axes)
    factors = [one.source for one in loads(terms[1].term)]  # type: ignore[union-attr]
    weights = next(factor for factor in factors if not factor.same_as(source.buffer))
    _points, _panels, depth, width = map(fixed, weights.shape)
    columns = fixed(summed.spatial[-1].extent)
    value = anchored.flat.value(choice.args[1], analyzer)
    return Winograd(
        source, choice.args[0], value, anchored.flat.views[weights], depth, columns, width, anchored
    )


def tiles_of(unit: VectorUnit, depth: int, columns: int) -> int:
    """Tiles of a block: both scratch buffers about fill L2, within 12 to 32."""
    room = unit.l2 // (4 * POINTS * (depth + columns))
    return min(max(room // ROWS * ROWS, 3 * ROWS), 8 * ROWS)


def emit_winograd(winograd: Winograd, unit: VectorUnit) -> Stmt:
    """The kernel: a task is a block of tiles."""
    axes = (*winograd.source.spatial[:3], *winograd.anchored.anchor.spatial[1:3])

    def tasks(axes: tuple[Axis, ...]) -> Stmt:
        return bind_opaque(
            "tiles",
            product(extents_of(axes[:3])),
            lambda tiles: _tasks(winograd, unit, axes, tiles),
        )

    return seq(*winograd.anchored.flat.prelude, with_extents(axes, tasks))


def _tasks(winograd: Winograd, unit: VectorUnit, axes: tuple[Axis, ...], tiles: Expr) -> Stmt:
    """`axes`: those of the tiles, and the rows and columns of the result."""
    most = tiles_of(unit, winograd.depth, winograd.padded)
    work = tiles * const(2 * POINTS * winograd.depth * winograd.columns)

    def with_blocks(blocks: Expr, each: Expr) -> Stmt:
        def task(t: Expr) -> Stmt:
            return bind(
                "count",
                tirx.min(each, tiles - t * each),
                lambda count: _block(winograd, unit, axes, t * each, count, most),
            )

        return share_out(blocks, work >= const(PARALLEL_FLOPS), task)

    # At least two blocks where there are tiles for them, so that small images keep two threads
    # busy.
    wanted = tirx.max(
        tirx.ceildiv(tiles, const(most)), tirx.min(const(2), tirx.ceildiv(tiles, const(ROWS)))
    )
    each = tirx.ceildiv(tirx.ceildiv(tiles, tirx.max(wanted, const(1))), const(ROWS)) * const(ROWS)
    return bind(
        "each",
        tirx.max(each, const(ROWS)),
        lambda e: bind("blocks", tirx.ceildiv(tiles, e), lambda n: with_blocks(n, e)),
    )


def _block(
    winograd: Winograd,
    unit: VectorUnit,
    axes: tuple[Axis, ...],
    first: Expr,
    count: Expr,
    most: int,
) -> Stmt:
    spread, one = allocate([POINTS * most * winograd.depth], "float32", "spread", "global")
    summed, two = allocate([POINTS * most * winograd.padded], "float32", "summed", "global")
    lanes = unit.lanes(32)

    def tile(body: Callable[[Expr, Table], Stmt]) -> Stmt:
        return serial(
            count, lambda t: bind_all(place_of(axes[:3], first + t), lambda at: body(t, at)), "tile"
        )

    return seq(
        one,
        two,
        tile(lambda t, at: _inward(winograd, lanes, spread, most, t, at)),
        serial(
            POINTS,
            lambda point: _products(winograd, unit, spread, summed, most, point, count),
            "point",
        ),
        tile(lambda t, at: _outward(winograd, lanes, summed, most, t, at, extents_of(axes[3:]))),
    )


def _inward(winograd: Winograd, lanes: int, spread: Any, most: int, t: Expr, at: Table) -> Stmt:
    """The 6x6 inputs of a tile, read once, padding as zeros, and transformed along both axes."""
    c, (i, j) = winograd.source.spatial[-1].var, [axis.var for axis in winograd.source.reduced]

    def under(row: Expr, column: Expr) -> Table:
        return {**at, i: row, j: column}

    def interior() -> Expr:
        corners = (const(0), const(REACH - 1))
        return tirx.all(*(substitute(winograd.inside, under(corner, corner)) for corner in corners))

    def strip(s: Expr) -> Stmt:
        given, allocation = allocate([POINTS, lanes], "float32", "given")

        def fill(guarded: bool) -> Stmt:
            return serial(
                REACH,
                lambda row: serial(REACH, lambda column: read(row, column, guarded), "column"),
                "row",
            )

        def read(row: Expr, column: Expr, guarded: bool) -> Stmt:
            place, table = row * const(REACH) + column, under(row, column)

            def value(lane: Expr) -> Expr:
                return substitute(winograd.value, {**table, c: s * const(lanes) + lane})

            copy = vectorized(lanes, lambda lane: store(given, value(lane), place, lane))
            zero = vectorized(
                lanes, lambda lane: store(given, tirx.const(0, "float32"), place, lane)
            )
            return when(substitute(winograd.inside, table), copy, zero) if guarded else copy

        def put(u: int, v: int, value: Callable[[Expr], Expr]) -> Stmt:
            base = (const((u * REACH + v) * most) + t) * const(winograd.depth) + s * const(lanes)
            return vectorized(lanes, lambda lane: store(spread, value(lane), base + lane))

        return seq(
            allocation,
            when(interior(), fill(False), fill(True)),
            _both_ways(INPUT, lanes, given, put),
        )

    return serial(winograd.depth // lanes, strip, "strip")


def _both_ways(
    matrix: np.ndarray,
    lanes: int,
    given: Any,
    put: Callable[[int, int, Callable[[Expr], Expr]], Stmt],
) -> Stmt:
    """matrix @ given [6, 6] @ matrix.T, vector by vector."""
    rows = matrix.shape[0]
    half, allocation = allocate([rows * REACH, lanes], "float32", "half")

    def one(u: int, j: int) -> Stmt:
        def value(lane: Expr) -> Expr:
            return _combined(matrix[u], lambda i: load(given, [const(i * REACH + j), lane]))

        return vectorized(lanes, lambda lane: store(half, value(lane), const(u * REACH + j), lane))

    def other(u: int, v: int) -> Stmt:
        return put(
            u,
            v,
            lambda lane: _combined(matrix[v], lambda j: load(half, [const(u * REACH + j), lane])),
        )

    ways = (
        [one(u, j) for u in range(rows) for j in range(REACH)],
        [other(u, v) for u in range(rows) for v in range(rows)],
    )
    return seq(allocation, *ways[0], *ways[1])


def _combined(row: np.ndarray, value: Callable[[int], Expr]) -> Expr:
    """The sum of row[i] * value(i)."""
    total: Expr | None = None
    for i, factor in enumerate(row):
        if factor == 0:
            continue
        term = (
            value(i) if abs(factor) == 1 else tirx.const(abs(float(factor)), "float32") * value(i)
        )
        if total is None:
            total = term if factor > 0 else tirx.const(0, "float32") - term
        else:
            total = total + term if factor > 0 else total - term
    assert total is not None
    return total


def _products(
    winograd: Winograd,
    unit: VectorUnit,
    spread: Any,
    summed: Any,
    most: int,
    point: Expr,
    count: Expr,
) -> Stmt:
    depth, width = winograd.depth, winograd.width
    panels = winograd.padded // width

    def panel(p: Expr) -> Stmt:
        weights = (point * const(panels) + p) * const(depth)

        def tile(index: Expr) -> Stmt:
            row = point * const(most) + index * const(ROWS)
            return products(
                ROWS,
                width,
                unit.lanes(32),
                along(const(depth), unit.together),
                lambda i, k: load(spread, [(row + const(i)) * const(depth) + k]),
                lambda k, lane: load(winograd.weights, [(weights + k) * const(width) + lane]),
                None,
                lambda i, lane, total: store(
                    summed,
                    total,
                    (row + const(i)) * const(winograd.padded) + p * const(width) + lane,
                ),
            )

        return serial(tirx.ceildiv(count, const(ROWS)), tile, "rows")

    return serial(panels, panel, "panel")


def _outward(
    winograd: Winograd, lanes: int, summed: Any, most: int, t: Expr, at: Table, size: list[Expr]
) -> Stmt:
    """The 4x4 results of a tile, those inside the image through the epilogue."""
    n, y, x = (at[axis.var] for axis in winograd.source.spatial[:3])
    *outer, column = (axis.var for axis in winograd.anchored.anchor.spatial)
    epilogue = winograd.anchored.epilogue

    def strip(s: Expr) -> Stmt:
        given, one = allocate([POINTS, lanes], "float32", "given")
        results, two = allocate([TILE * TILE, lanes], "float32", "results")

        def read(point: int) -> Stmt:
            base = (const(point * most) + t) * const(winograd.padded) + s * const(lanes)
            return vectorized(
                lanes, lambda lane: store(given, load(summed, [base + lane]), const(point), lane)
            )

        def put(u: int, v: int, value: Callable[[Expr], Expr]) -> Stmt:
            return vectorized(
                lanes, lambda lane: store(results, value(lane), const(u * TILE + v), lane)
            )

        def place(p: Expr) -> Stmt:
            row, across = y * const(TILE) + p // const(TILE), x * const(TILE) + p % const(TILE)

            def write(bound: Table) -> Stmt:
                return vectorized(
                    lanes,
                    lambda lane: epilogue.write(
                        load(results, [p, lane]), {**bound, column: s * const(lanes) + lane}
                    ),
                )

            inside = tirx.all(row < size[0], across < size[1])
            return when(inside, bind_all(dict(zip(outer, [n, row, across], strict=True)), write))

        reads = [read(point) for point in range(POINTS)]
        return seq(
            one,
            two,
            *reads,
            _both_ways(OUTPUT, lanes, given, put),
            serial(TILE * TILE, place, "place"),
        )

    return serial(winograd.columns // lanes, strip, "strip")
