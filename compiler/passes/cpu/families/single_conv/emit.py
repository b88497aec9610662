"""The kernel of convolutions with one output channel over images that are padded already.

Loop order: strips of the result's rows over the threads; in a strip tiles of some places, each with
a vector of partial sums that stays in a register over the whole window. A vector lies along the
elements of the window that are neighbours in memory, and each vector of weights that is loaded
serves all places of the tile. At the end the vectors become one vector of the places' sums, by
which whatever was fused behind the convolution is computed in vectors of places.

The rest of a strip is computed in tiles of one such vector, the last of which reads its last place
several times. Every place adds up in the same order.
"""

from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.single_conv.tiling import Tiling, tiling_for
from compiler.passes.cpu.shared.lanes import reduce_each, vector_index
from compiler.passes.cpu.shared.sharing import share_positions
from compiler.passes.cpu.shared.windowed import PanelConv, begin
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    emit,
    fresh,
    let,
    serial,
    statements,
    store,
    strips,
    tile,
)
from compiler.tir.exprs import Expr, Table, as_int, const, load, require_int, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, hide_count, multiply_extents

STRIP = 256
"""Places of a task at most, so that an image of one row has several tasks."""


def emit_single_conv(conv: PanelConv, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    tiling = tiling_for(conv, unit)
    small = replace(tiling, places=tiling.lanes)
    depth = tiling.run * require_int(multiply_extents([axis.extent for axis in conv.window]))
    with statements() as body:
        known, m = begin(conv)
        *outer, row = known.rows
        worth = m * (2 * depth) >= PARALLEL_FLOPS
        for at, part in share_positions(outer, tirx.ceildiv(row.extent, STRIP), worth):
            start = let("start", part * STRIP)
            count = let("count", tirx.min(STRIP, row.extent - start))
            tiles = let("tiles", tirx.truncdiv(count, tiling.places))
            with serial(tiles, "tile") as t:
                x = let("x", start + t * tiling.places)
                _emit_tile(known, tiling, m, {**at, row.var: x}, const(tiling.places))
            done = let("done", tiles * tiling.places)
            with serial(tirx.ceildiv(count - done, small.places), "tile") as t:
                first = let("first", done + t * small.places)
                left = let("left", tirx.min(small.places, count - first))
                _emit_tile(known, small, m, {**at, row.var: let("x", start + first)}, left)
    return body.stmt


def _emit_tile(conv: PanelConv, tiling: Tiling, m: Expr, at: Table, count: Expr) -> None:
    """Emit `count` places from `at` on, which are at most those of a tile."""
    places, lanes, row = tiling.places, tiling.lanes, conv.rows[-1].var
    acc = alloc([places, lanes], "float32", "acc")
    for i, lane in tile(places, lanes, lanes):
        store(acc, 0, i, lane)
    _emit_window(conv, tiling, m, acc, _windows(conv, tiling, at, count))
    sums = alloc([places], "float32", "sums")
    vectors = [load(acc, [i, vector_index(lanes)]) for i in range(places)]
    for i in range(0, places, lanes):
        folded = reduce_each(vectors[i : i + lanes], lambda one, other: one + other, "float32")
        emit(tirx.BufferStore(sums, folded, [vector_index(lanes, i)]))
    for i in across(places, lanes) if as_int(count) is not None else strips(count, lanes):
        here = {**at, row: at[row] + i, conv.column.var: const(0)}
        conv.epilogue.store(load(sums, [i]), here)


def _windows(conv: PanelConv, tiling: Tiling, at: Table, count: Expr) -> list[Expr]:
    """Where the window of each place of a tile begins; those past the last are at the last."""
    first = let("window", substitute(conv.origin, at))
    step = require_int(stride(conv.origin, conv.rows[-1].var))
    if as_int(count) is not None:
        return [first + i * step for i in range(tiling.places)]
    last = count - 1
    return [fresh(f"a{i}", first + tirx.min(i, last) * step) for i in range(tiling.places)]


def _emit_window(conv: PanelConv, tiling: Tiling, m: Expr, acc: Any, windows: list[Expr]) -> None:
    """Emit the sums of the windows, a row of `acc` each."""
    lanes = tiling.lanes
    # LLVM unrolls the small known extents of a window completely, which takes it seconds.
    for position, moved in conv.over_window(lambda extent: hide_count(extent, m)):
        for first, skipped in tiling.vectors():
            weight = position * tiling.run + first
            for i, lane in tile(tiling.places, lanes, lanes):
                given = load(conv.source, [windows[i] + moved + first + lane])
                term = _counted(given, lane, skipped) * _counted(
                    load(conv.weights, [weight + lane]), lane, skipped
                )
                store(acc, load(acc, [i, lane]) + term, i, lane)


def _counted(value: Expr, lane: Expr, skipped: int) -> Expr:
    """The value, zero in the first lanes, which do not count: zero times infinity would."""
    return tirx.Select(lane >= skipped, value, tirx.const(0, "float32")) if skipped else value
