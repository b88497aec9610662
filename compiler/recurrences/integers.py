"""The state's matmul of a recurrent layer in integers, as ONNX Runtime's DynamicQuantizeLSTM has
it: each step quantizes the states of all rows to uint8 by their common range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.recurrences.layer import LANES, Integers, Recurrence
from compiler.recurrences.units import Task, Units, accumulator_order
from compiler.targets.vector_unit import LINE
from compiler.tir.building import alloc, blocks, emit, prefetch, serial, store, vectorize, when
from compiler.tir.dots import multiply_accumulate
from compiler.tir.exprs import Expr, const, load

CHUNK = 32
"""States that are quantized at once."""
MOST = 255
"""The greatest uint8."""
SIGN = 128
"""What a byte as int8 is less than as uint8."""


@dataclass(frozen=True)
class QuantizedStates:
    """Scratch memory: the quantized states of all rows as words of 32 bits, a group each; those of
    one row less their zero point; the sums of each row, if weights have zero points; the range, and
    the scale and zero point of a step.
    """

    words: Any
    row: Any
    totals: Any
    low: Any
    high: Any
    scale: Any
    zero: Any


def alloc_quantized(layer: Recurrence) -> QuantizedStates:
    """The scratch memory of a task."""
    integers = _integers(layer)
    words = layer.share * (layer.width // integers.group)
    return QuantizedStates(
        alloc([words], "int32", "words", "global"),
        alloc([layer.width], "int32", "centred", "global"),
        alloc([layer.share], "int32", "row_totals", "global") if integers.zeros else None,
        alloc([CHUNK], "float32", "low"),
        alloc([CHUNK], "float32", "high"),
        alloc([1], "float32", "scale"),
        alloc([1], "int32", "zero"),
    )


def emit_quantized(task: Task, step: Expr, states: Any) -> None:
    """Emit the states of all rows as bytes, by the finest scale that holds their range and zero.

    NaN counts for no range and becomes the least integer.
    """
    layer, data = task.layer, task.quantized
    _emit_range(task, step, states)
    _emit_scale(data)
    least = (0 - load(data.zero, [0])).astype("float32")
    most = (MOST - load(data.zero, [0])).astype("float32")
    with serial(task.count, "row") as r:
        for start, width in _chunks(layer):
            with vectorize(width) as v:
                value = load(states, [r * layer.width + start + v]) / load(data.scale, [0])
                nearest = tirx.nearbyint(tirx.min(tirx.max(value, least), most))
                store(data.row, nearest.astype("int32"), start + v)
        _emit_words(task, r)
        if data.totals is not None:
            _emit_row_total(task, r)


def _emit_range(task: Task, step: Expr, states: Any) -> None:
    """Emit the least and the greatest state of all rows and 0."""
    layer, data = task.layer, task.quantized
    for part in (data.low, data.high):
        with vectorize(CHUNK) as v:
            store(part, 0, v)
    with serial(task.count, "row") as r, when(_counts(task, step, r)):
        for start, width in _chunks(layer):
            with vectorize(width) as v:
                value = load(states, [r * layer.width + start + v])
                store(data.low, tirx.min(value, load(data.low, [v])), v)
                store(data.high, tirx.max(value, load(data.high, [v])), v)
    width = CHUNK // 2
    while width:
        for part, extreme in ((data.low, tirx.min), (data.high, tirx.max)):
            with vectorize(width) as v:
                store(part, extreme(load(part, [v]), load(part, [width + v])), v)
        width //= 2


def _counts(task: Task, step: Expr, row: Expr) -> Expr | bool:
    """True if the state of a row counts for the range: for ONNX Runtime, rows that have ended give
    zeros from the second step on, if it writes all states.
    """
    if not task.layer.masked or _integers(task.layer).ended:
        return True
    return step <= load(task.io.lengths, [task.first + row])


def _emit_scale(data: QuantizedStates) -> None:
    """Emit the scale and zero point of the range."""
    low, high, one = load(data.low, [0]), load(data.high, [0]), tirx.const(1, "float32")
    most = tirx.const(MOST, "float32")
    span = high - low
    store(data.scale, tirx.Select(span > 0, span / most, one), 0)
    zero = tirx.const(0, "float32") - low / load(data.scale, [0])
    zero = tirx.min(tirx.max(zero, tirx.const(0, "float32")), most)
    store(data.zero, tirx.nearbyint(zero).astype("int32"), 0)


def _emit_words(task: Task, row: Expr) -> None:
    """Emit a row's groups as the instruction takes them."""
    layer, data, integers = task.layer, task.quantized, _integers(task.layer)
    group, first = integers.group, row * (layer.width // integers.group)
    for start, width in _chunks(layer):
        if integers.dot is None:
            with vectorize(width) as v:
                store(data.words, load(data.row, [start + v]), first + start + v)
            continue
        values = load(data.row, [prim.Ramp(start, const(1), width)])
        if integers.takes_bytes:
            values = values + prim.Broadcast(_stored_zero(task), width)
        words = tirx.reinterpret(
            f"int32x{width // group}", values.astype(f"{integers.dot.left}x{width}")
        )
        index = prim.Ramp(first + tirx.truncdiv(start, group), const(1), width // group)
        emit(tirx.BufferStore(data.words, words, [index]))


def _emit_row_total(task: Task, row: Expr) -> None:
    """Emit the sum of a row; units past the last are zeros."""
    layer, data = task.layer, task.quantized
    total = alloc([LANES], "int32", "total")
    with vectorize(LANES) as v:
        store(total, 0, v)
    with serial(layer.blocks, "block") as block, vectorize(LANES) as v:
        store(total, load(total, [v]) + load(data.row, [block * LANES + v]), v)
    store(data.totals, 0, row)
    with serial(LANES) as lane:
        store(data.totals, load(data.totals, [row]) + load(total, [lane]), row)


def emit_integer_tile(task: Task, tile: Sequence[Sequence[Units]], gates: Sequence[int]) -> None:
    """Emit the sums of some gates, in registers, for a few rows or panels: the units of each."""
    layer, integers = task.layer, _integers(task.layer)
    width, lanes = LANES * integers.panel, integers.lanes
    order = accumulator_order(len(tile), len(gates))
    starts = range(0, width, lanes)
    acc = alloc([len(tile) * len(gates) * width], "int32", "acc")
    for t, g in order:
        for start in starts:
            with vectorize(lanes) as v:
                store(acc, 0, (t * len(gates) + g) * width + start + v)
    _prefetch_inputs(tile, gates)
    groups = layer.width // integers.group
    with serial(integers.groups(layer.hidden), "k") as k:
        for t, g in order:
            units = tile[t][0]
            word = load(task.quantized.words, [units.row * groups + k])
            for start in starts:
                index = (t * len(gates) + g) * width + start
                _emit_multiply(task, acc, index, word, (units.block, gates[g], k, start))
    for t, g in order:
        for number, units in enumerate(tile[t]):
            offset = (t * len(gates) + g) * width + number * LANES
            with vectorize(LANES) as v:
                total = _undo_zeros(task, units, gates[g], v, load(acc, [offset + v]))
                scale = load(task.io.scales, [units.column(gates[g], v)])
                scaled = total.astype("float32") * (load(task.quantized.scale, [0]) * scale)
                value = units.start(gates[g], v) + scaled
                store(task.accumulators, value, units.sum_index(gates[g], v))


def _prefetch_inputs(tile: Sequence[Sequence[Units]], gates: Sequence[int]) -> None:
    """Emit prefetches of the input's part of the sums, which a tile reads at its end: rows of a
    large batch are far apart.
    """
    for units in tile:
        for unit in units:
            for gate in gates[:: LINE // (4 * LANES)]:
                prefetch(unit.task.io.x, unit.input_index(gate, const(0)), level=1)


def _emit_multiply(
    task: Task, acc: Any, index: int, word: Expr, weight: tuple[Expr, int, Expr, int]
) -> None:
    """Emit the dot products of a group of states and a vector of weights: those of (block, gate,
    group, first lane).
    """
    integers, (block, gate, k, start) = _integers(task.layer), weight
    weights, lanes = task.io.weights, integers.lanes
    if integers.dot is None:
        with vectorize(lanes) as v:
            weight = load(weights, [block, gate, k, start + v]).astype("int32")
            store(acc, load(acc, [const(index) + v]) + word * weight, const(index) + v)
        return
    size, layer = lanes * integers.group, task.layer
    groups = tirx.truncdiv(block, integers.panel) * integers.groups(layer.hidden) + k
    first = (groups * layer.cell.gates + gate) * integers.row + start * integers.group
    right = load(weights, [prim.Ramp(first, const(1), size)])
    right = right.astype(f"{integers.dot.right}x{size}")
    position = prim.Ramp(const(index), const(1), lanes)
    total = multiply_accumulate(integers.dot, lanes, load(acc, [position]), word, right)
    emit(tirx.BufferStore(acc, total, [position]))


def _undo_zeros(task: Task, units: Units, gate: int, lane: Expr, total: Expr) -> Expr:
    """The sum of products less the zero points of both sides."""
    io, column = task.io, units.column(gate, lane)
    if io.totals is not None:
        total = total - _stored_zero(task) * load(io.totals, [column])
    if io.zeros is not None:
        row = load(task.quantized.totals, [units.row])
        total = total - row * load(io.zeros, [column])
    return total


def _stored_zero(task: Task) -> Expr:
    """The zero point of the states' bytes as the instruction takes them."""
    zero, dot = load(task.quantized.zero, [0]), _integers(task.layer).dot
    return zero - SIGN if dot is not None and dot.left == "int8" else zero


def _chunks(layer: Recurrence) -> Iterator[tuple[Expr, int]]:
    """(start, width) of the vectors of a row of states."""
    yield from blocks(layer.width, CHUNK if layer.fixed else LANES, "chunk")


def _integers(layer: Recurrence) -> Integers:
    assert layer.integers is not None
    return layer.integers
