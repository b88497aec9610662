"""The state's matmul of a recurrent layer by weights of 4 and 8 bits, which become float32 in
registers: inputs and states stay float32, as a model has it whose weights are dequantized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from compiler.recurrences.layer import LANES, Stored
from compiler.recurrences.units import Task, Units, accumulators
from compiler.tir.building import alloc, serial, store
from compiler.tir.exprs import Expr, const, load, require_int


def emit_stored_tile(task: Task, rows: Sequence[Units], gates: Sequence[int], left: Any) -> None:
    """Emit the sums of some gates for a few rows: the integers of a block of the state in
    registers, which its scales then bring to the sums.
    """
    stored, hidden = _stored(task), require_int(task.layer.hidden)
    for units, gate, v, _ in accumulators(rows, gates):
        store(task.accumulators, units.start(gate, v), units.sum_index(gate, v))
    sizes = stored.sizes(hidden)
    full = len(sizes) - (sizes[-1:] != sizes[:1])
    acc = alloc([len(rows) * len(gates) * LANES], "float32", "acc")
    with serial(full, "part") as part:
        _emit_block(task, rows, gates, left, acc, (part, sizes[0]))
    if full < len(sizes):
        _emit_block(task, rows, gates, left, acc, (const(full), sizes[-1]))


def _emit_block(
    task: Task,
    rows: Sequence[Units],
    gates: Sequence[int],
    left: Any,
    acc: Any,
    block: tuple[Expr, int],
) -> None:
    """Emit the share of a block of the state, (its number, its units)."""
    stored, (number, size) = _stored(task), block
    first = number * ((stored.block or 0) // stored.each)
    for _, _, _, offset in accumulators(rows, gates):
        store(acc, 0, offset)
    with serial(size // stored.each, "k") as k:
        for within in range(stored.each):
            _emit_unit(rows, gates, left, acc, (number, first + k, within))
    for within in range(size % stored.each):
        _emit_unit(rows, gates, left, acc, (number, first + size // stored.each, within))
    for units, gate, v, offset in accumulators(rows, gates):
        scale = load(task.io.scales, [number, units.column(gate, v)])
        value = load(task.accumulators, [units.sum_index(gate, v)]) + load(acc, [offset]) * scale
        store(task.accumulators, value, units.sum_index(gate, v))


def _emit_unit(
    rows: Sequence[Units],
    gates: Sequence[int],
    left: Any,
    acc: Any,
    position: tuple[Expr, Expr, int],
) -> None:
    """Emit the products of one unit of the states: that of (block, byte, number within it)."""
    block, byte, within = position
    for units, gate, v, offset in accumulators(rows, gates):
        io, unit = units.task.io, byte * _stored(units.task).each + within
        element = load(left, [units.row * units.task.layer.width + unit])
        weight = _integer_at(units, gate, v, byte, within)
        if io.zeros is not None:
            weight = weight - load(io.zeros, [block, units.column(gate, v)]).astype("int32")
        elif _stored(units.task).bits == 4:
            weight = weight - 8
        store(acc, load(acc, [offset]) + element * weight.astype("float32"), offset)


def _integer_at(units: Units, gate: int, lane: Expr, byte: Expr, within: int) -> Expr:
    """A gate's weight, number `within` of a byte, as int32."""
    bits = _stored(units.task).bits
    value = load(units.task.io.weights, [units.block, gate, byte, lane]).astype("int32")
    if bits == 8:
        return value
    shifted = tirx.shift_right(value, tirx.const(bits * within, "int32")) if within else value
    return tirx.bitwise_and(shifted, tirx.const((1 << bits) - 1, "int32"))


def _stored(task: Task) -> Stored:
    assert task.layer.stored is not None
    return task.layer.stored
