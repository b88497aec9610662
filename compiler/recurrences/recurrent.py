"""The loop over time of a recurrent layer.

Loop order: directions and rows over the threads, since these are independent of each other; a task
walks all steps; a step goes through the units in groups of a few blocks; per block, a few rows at
once, whose accumulators for some gates stay in registers over the units of the state before, and
for a row that is left, all blocks of the group at once. Then all gates of the group are applied in
one go, so that nothing but states and a group's sums goes through memory, and the rows of a task
share what is read of the weights.

A layer whose states are quantized has one task a direction: all rows have one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvm import s_tir, tirx

from compiler.recurrences.description import ATTRIBUTE, describe
from compiler.recurrences.gates import Phase, phases_of
from compiler.recurrences.integers import alloc_quantized, emit_integer_tile, emit_quantized
from compiler.recurrences.layer import LANES, Buffers, Recurrence, buffers_of
from compiler.recurrences.stored import emit_stored_tile
from compiler.recurrences.units import Task, Units, accumulators
from compiler.tir.building import (
    alloc,
    let,
    let_opaque,
    otherwise,
    parallel,
    serial,
    statements,
    store,
    strips,
    when,
)
from compiler.tir.exprs import Expr, as_int, const, either, load
from compiler.tir.loops import PARALLEL_FLOPS

ATTRIBUTES = {
    "tirx.noalias": True,
    "tirx.is_scheduled": True,
    # TVM's OpPatternKind of a program that fusion leaves alone.
    "op_pattern": 8,
    "s_tir": True,
}


def emit_recurrence(*directions: Recurrence) -> tirx.PrimFunc:
    """The program of a layer, which needs no schedule: of one direction or of two side by side,
    with the same extents. Parameters are the inputs of each, then the results of each.
    """
    layer, inputs_of = directions[0], [buffers_of(direction) for direction in directions]
    with statements() as body:
        each = let_opaque("each", layer.share)
        # The number of tasks decides over threads as well as the work: a row of one direction is
        # one task.
        parts = let_opaque("parts", tirx.ceildiv(layer.batch, each))
        tasks, flops = parts * len(directions), layer.flops * len(directions)
        profitable = layer.fixed and tirx.all(flops >= PARALLEL_FLOPS, tasks > 1)
        with parallel(tasks, profitable) as number:
            if len(directions) == 1:
                _emit_task(layer, inputs_of[0], each, number)
            else:
                with when(number < parts):
                    _emit_task(layer, inputs_of[0], each, number)
                with otherwise():
                    _emit_task(directions[1], inputs_of[1], each, number - parts)
    block = s_tir.SBlock([], [], [], "root", body.stmt)
    root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block)
    inputs = [buffer for buffers in inputs_of for buffer in buffers.inputs]
    results = [buffer for buffers in inputs_of for buffer in buffers.results]
    program = tirx.PrimFunc([*inputs, *results], root).with_attrs(ATTRIBUTES)
    if layer.integers and layer.fixed and layer.integers.dot is None:
        return program.with_attr(ATTRIBUTE, describe(directions))
    return program


def _emit_task(layer: Recurrence, buffers: Buffers, each: Expr, part: Expr) -> None:
    """Emit all steps of one of the parts of `each` rows."""
    first = let("first", part * each)
    count = let("count", tirx.min(each, layer.batch - first))
    size_of_row = layer.group_blocks * layer.cell.gates * LANES
    accumulators = alloc([layer.share * size_of_row], "float32", "sums", "global")
    names = ["state", "following"]
    if layer.two_states or layer.two_phases:
        names.append("kept")
    if layer.two_phases:
        names.append("reset")
    size = layer.share * layer.width
    scratch = [alloc([size], "float32", name, "global") for name in names]
    task = Task(layer, buffers, first, count, accumulators, *scratch)
    if layer.integers:
        task = replace(task, quantized=alloc_quantized(layer))
    _emit_start(task)
    with serial(layer.steps, "step") as step:
        for phase in phases_of(task):
            _emit_phase(task, step, phase)
        _emit_advance(task, step)
    _emit_finals(task)


def _emit_start(task: Task) -> None:
    """Emit states from the given ones, zeros past the last unit; zeros for what masked steps leave
    unwritten.
    """
    layer, buffers = task.layer, task.io
    scratch = [task.state, task.memory][: len(buffers.states)]
    with serial(task.count) as r:
        row, offset = task.first + r, r * layer.width
        for j in strips(layer.width, LANES):
            # Lanes past the last unit are computed like the others, from zeros; no unit reads them.
            for state in scratch:
                store(state, 0, offset + j)
        for j in strips(layer.hidden, LANES):
            for state, before in zip(scratch, buffers.states, strict=True):
                store(state, load(before, [row, j]), offset + j)
        if layer.masked:
            with serial(layer.steps) as step:
                for j in strips(layer.hidden, LANES):
                    store(buffers.every, 0, step, row, j)


def _emit_phase(task: Task, step: Expr, phase: Phase) -> None:
    """Emit the sums of some gates, a group of blocks at a time; then what the cell does."""
    if task.layer.integers:
        emit_quantized(task, step, phase.left)
    panel = task.layer.panel
    for first, count in _groups(task.layer, step):
        with serial(count // panel, "slot") as slot:
            _emit_tiles(task, step, phase, first, [slot * panel + block for block in range(panel)])
        if rest := count % panel:
            slots = [const(count - rest + block) for block in range(rest)]
            _emit_tiles(task, step, phase, first, slots)
        for row in _rows_alone(task):
            units = [Units(task, step, first + slot, const(slot), row) for slot in range(count)]
            tile = [units[start : start + panel] for start in range(0, count, panel)]
            _emit_tile(task, tile, phase.gates, phase)
        # Right after the group's sums, while those are in L1.
        with (
            serial(task.count, "row") as r,
            when(task.active(step, task.first + r)),
            serial(count, "slot") as slot,
        ):
            phase.apply(Units(task, step, first + slot, slot, r))


def _emit_tiles(task: Task, step: Expr, phase: Phase, first: Expr, slots: Sequence[Expr]) -> None:
    """Emit the sums of the blocks of a panel for all rows that tiles of several take."""
    for row, rows, gates in _tiles(task, phase):
        tile = [
            [Units(task, step, first + slot, slot, row + r) for slot in slots] for r in range(rows)
        ]
        _emit_tile(task, tile, gates, phase)


def _groups(layer: Recurrence, step: Expr) -> Iterator[tuple[Expr, int]]:
    """(first block, blocks) of all groups: of as many as are summed together, then what is left, in
    one group where it is known how many that are.

    Weights that do not stay in the cache are read there and back in turns: so a step finds in the
    cache what the step before has read last.
    """
    group_blocks, left = layer.group_blocks, layer.blocks % layer.group_blocks
    groups = layer.blocks // group_blocks
    with serial(groups, "group") as index:
        back = tirx.const(False, "bool") if layer.cached else step % 2 == 1
        yield let("first", either(back, groups - 1 - index, index) * group_blocks), group_blocks
    if layer.fixed:
        if rest := as_int(left):
            yield layer.blocks - rest, rest
        return
    with serial(left, "block") as block:
        yield layer.blocks - left + block, 1


def _tiles(task: Task, phase: Phase) -> Iterator[tuple[Expr, int, Sequence[int]]]:
    """(first row, rows, gates) of the tiles of a block with more than one row: as many rows as a
    tile holds, then what is left in smaller ones.
    """
    rows, done = task.layer.rows, const(0)
    while rows > 1:
        full = (task.count - done) // rows
        # Some gates at a time, for all rows: so their weights stay in the cache.
        for gates in _parts(phase.gates, task.layer.accumulators // rows):
            with serial(full, f"rows_{rows}") as t:
                yield done + t * rows, rows, gates
        done = done + full * rows
        rows = 4 if rows == 6 else rows // 2


def _rows_alone(task: Task) -> Iterator[Expr]:
    """The rows that tiles of several leave: the last of an odd number, or all."""
    left = task.count % 2 if task.layer.rows > 1 else task.count
    with serial(left, "rows_1") as r:
        yield task.count - left + r


def _parts(gates: Sequence[int], accumulators: int) -> list[Sequence[int]]:
    """Gates summed together: as many as the registers hold for a tile's rows, two of four rather
    than three.
    """
    group = max(accumulators, 1)
    group = 2 if 2 <= group < len(gates) else group
    return [gates[start : start + group] for start in range(0, len(gates), group)]


def _emit_tile(
    task: Task, tile: Sequence[Sequence[Units]], gates: Sequence[int], phase: Phase
) -> None:
    """Emit the sums of some gates, in registers, for a few rows or panels: the units of each."""
    if task.layer.integers:
        emit_integer_tile(task, tile, gates)
        return
    rows = [units for (units,) in tile]
    if task.layer.stored:
        emit_stored_tile(task, rows, gates, phase.left)
        return
    acc = alloc([len(rows) * len(gates) * LANES], "float32", "acc")
    for units, gate, v, offset in accumulators(rows, gates):
        store(acc, units.start(gate, v), offset)
    # Weights of a gate are contiguous over k, so the hardware prefetches them.
    with serial(task.layer.hidden, "k") as k:
        for units, gate, v, offset in accumulators(rows, gates):
            left = load(phase.left, [units.row * task.layer.width + k])
            store(acc, load(acc, [offset]) + left * units.weight(gate, k, v), offset)
    for units, gate, v, offset in accumulators(rows, gates):
        store(task.accumulators, load(acc, [offset]), units.sum_index(gate, v))


def _emit_advance(task: Task, step: Expr) -> None:
    """Emit the next state of every row to its state, and to the results."""
    # The next state lies apart until all blocks of the step have read the one before.
    with serial(task.count) as r:
        row, offset = task.first + r, r * task.layer.width
        with when(task.active(step, row)):
            for j in strips(task.layer.hidden, LANES):
                following = load(task.following, [offset + j])
                store(task.state, following, offset + j)
                store(task.io.every, following, task.time(step, row), row, j)


def _emit_finals(task: Task) -> None:
    """Emit the last states of every row to the results."""
    finals = task.io.finals
    with serial(task.count) as r:
        for j in strips(task.layer.hidden, LANES):
            for final, state in zip(finals, [task.state, task.memory][: len(finals)], strict=True):
                store(final, load(state, [r * task.layer.width + j]), task.first + r, j)
