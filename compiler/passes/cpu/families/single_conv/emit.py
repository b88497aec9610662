"""The kernel of convolutions with one output channel over padded images.

Loop order: strips of the result's rows over the threads; in a strip tiles of some positions, each
with a vector of partial sums that stays in a register over the whole window. A vector is along
elements of the window that are contiguous in memory, and each vector of weights is loaded once for
all positions of the tile. At the end the vectors are reduced to one vector of the positions' sums,
so that the epilogue is computed in vectors of positions.

The rest of a strip is computed in tiles of one such vector, the last of which repeats its last
position. All positions are accumulated in the same order.
"""

from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.single_conv import plan
from compiler.passes.cpu.families.single_conv.plan import Tiling, tiling_for
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


def emit_single_conv(conv: PanelConv, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    tiling = tiling_for(conv, unit)
    rest_tiling = replace(tiling, positions=tiling.lanes)
    depth = tiling.run * require_int(multiply_extents([axis.extent for axis in conv.window]))
    with statements() as body:
        known, m = begin(conv)
        *outer, row = known.rows
        parallel_if = m * (2 * depth) >= PARALLEL_FLOPS
        for position, part in share_positions(
            outer, tirx.ceildiv(row.extent, plan.STRIP), parallel_if
        ):
            start = let("start", part * plan.STRIP)
            count = let("count", tirx.min(plan.STRIP, row.extent - start))
            tiles = let("tiles", tirx.truncdiv(count, tiling.positions))
            with serial(tiles, "tile") as t:
                x = let("x", start + t * tiling.positions)
                _emit_tile(known, tiling, m, {**position, row.var: x}, const(tiling.positions))
            done = let("done", tiles * tiling.positions)
            with serial(tirx.ceildiv(count - done, rest_tiling.positions), "tile") as t:
                first = let("first", done + t * rest_tiling.positions)
                left = let("left", tirx.min(rest_tiling.positions, count - first))
                _emit_tile(
                    known, rest_tiling, m, {**position, row.var: let("x", start + first)}, left
                )
    return body.stmt


def _emit_tile(conv: PanelConv, tiling: Tiling, m: Expr, position: Table, count: Expr) -> None:
    """Emit `count` positions from `position` on, at most those of a tile."""
    positions, lanes, row = tiling.positions, tiling.lanes, conv.rows[-1].var
    acc = alloc([positions, lanes], "float32", "acc")
    for i, lane in tile(positions, lanes, lanes):
        store(acc, 0, i, lane)
    _emit_window(conv, tiling, m, acc, _windows(conv, tiling, position, count))
    totals = alloc([positions], "float32", "sums")
    vectors = [load(acc, [i, vector_index(lanes)]) for i in range(positions)]
    for i in range(0, positions, lanes):
        total = reduce_each(vectors[i : i + lanes], lambda lhs, rhs: lhs + rhs, "float32")
        emit(tirx.BufferStore(totals, total, [vector_index(lanes, i)]))
    for i in across(positions, lanes) if as_int(count) is not None else strips(count, lanes):
        element = {**position, row: position[row] + i, conv.column.var: const(0)}
        conv.epilogue.store(load(totals, [i]), element)


def _windows(conv: PanelConv, tiling: Tiling, position: Table, count: Expr) -> list[Expr]:
    """The offset of each position's window; past the last position it is the last one's."""
    first = let("window", substitute(conv.origin, position))
    step = require_int(stride(conv.origin, conv.rows[-1].var))
    if as_int(count) is not None:
        return [first + i * step for i in range(tiling.positions)]
    last = count - 1
    return [fresh(f"a{i}", first + tirx.min(i, last) * step) for i in range(tiling.positions)]


def _emit_window(conv: PanelConv, tiling: Tiling, m: Expr, acc: Any, windows: list[Expr]) -> None:
    """Emit the partial sums of the windows, a row of `acc` each."""
    lanes = tiling.lanes
    # LLVM unrolls the small known extents of a window completely, which takes it seconds.
    for position, offset in conv.over_window(lambda extent: hide_count(extent, m)):
        for first, skipped in tiling.vectors():
            weight = position * tiling.run + first
            for i, lane in tile(tiling.positions, lanes, lanes):
                element = load(conv.source, [windows[i] + offset + first + lane])
                term = _mask_lanes(element, lane, skipped) * _mask_lanes(
                    load(conv.weights, [weight + lane]), lane, skipped
                )
                store(acc, load(acc, [i, lane]) + term, i, lane)


def _mask_lanes(value: Expr, lane: Expr, skipped: int) -> Expr:
    """Mask the first lanes by a select, not by multiplying with 0: 0 * inf is NaN."""
    return tirx.Select(lane >= skipped, value, tirx.const(0, "float32")) if skipped else value
