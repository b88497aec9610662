"""The left side of a matmul by block-wise quantized weights: rows of floats, in place or copied, or
quantized to 8 bits with a scale for each block, as integers or dequantized again.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.nbits import plan
from compiler.passes.cpu.families.nbits.match import BlockMatmul, default_zero, instruction_of
from compiler.passes.cpu.shared import plan as shared_plan
from compiler.passes.cpu.shared.sharing import position_of
from compiler.targets.architecture import IntegerDot
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    blocks,
    emit,
    let,
    let_all,
    parallel,
    serial,
    store,
    vectorize,
    when,
)
from compiler.tir.exprs import Expr, const, load, substitute

SHIFT = 1.5 * 2.0**23
"""Added to a number below 2^22, the lowest bits of the sum are the number rounded to the nearest
integer, ties to even; adding an integer below 2^22 to its bits gives the bits of the sum of both.
"""


@dataclass(frozen=True)
class FloatRows:
    """values[start(row) + k]: element k of a row, zeros behind its end up to whole words.

    block_totals: sums of the elements of each block, [rows, blocks], where weights are looked up
    and columns have zero points of their own.
    """

    values: Any
    start: Callable[[Expr], Expr]
    block_totals: Any = None


@dataclass(frozen=True)
class QuantizedRows:
    """Rows of `stride` int8, padded with zeros.

    scales: of each block, with 22 bits; block_totals: sums of the integers of a block, times the
    negative zero point where all columns have the same, else times the scale; shifts: -`SHIFT`
    times the scale, where `begins_at_shift`; instruction: the dot product.
    """

    values: Any
    stride: int
    scales: Any
    block_totals: Any
    shifts: Any
    instruction: IntegerDot


def sizes_of(matmul: BlockMatmul, unit: VectorUnit) -> tuple[int, ...]:
    """The numbers of rows that a register tile may have."""
    if has_lookup(matmul, unit):
        # Registers hold accumulators of the depth and of a block.
        return (1, 2, 4)
    if not matmul.form.quantized_rows or instruction_of(unit) is None:
        return tuple(size for size in (1, 2, 4, 8) if size == 1 or size * 2 + 6 <= unit.registers)
    # With one vector, integers of a row are broadcast for each, which AVX-512 does as part of the
    # multiplication.
    return (*integer_sizes(unit), plan.TALL) if unit.looks_up else integer_sizes(unit)


def integer_sizes(unit: VectorUnit) -> tuple[int, ...]:
    """The numbers of rows that a tile of integers by two vectors of columns may have: each row
    takes two accumulators of the depth and two of a block; six registers are for other values.
    """
    return tuple(size for size in (1, 2, 4, 6) if size == 1 or size * 4 + 6 <= unit.registers)


def has_lookup(matmul: BlockMatmul, unit: VectorUnit) -> bool:
    """True if weights are dequantized by a table lookup, one instruction for a vector."""
    floats = not matmul.form.quantized_rows or instruction_of(unit) is None
    return unit.looks_up and matmul.form.bits == 4 and floats


def begins_at_shift(matmul: BlockMatmul, unit: VectorUnit) -> bool:
    """True if integer accumulators of a block begin at the bits of `SHIFT`, so that one
    multiply-add dequantizes them: (SHIFT + total) * scale - SHIFT * scale, whose products are exact
    for a scale of 22 bits. A total must be below 2^22.
    """
    return unit.fma and matmul.block * 127 << matmul.form.bits < 1 << 22


def prepare_float_rows(matmul: BlockMatmul, unit: VectorUnit, m: Expr) -> FloatRows:
    """The rows in place, or emit a copy where their length is no multiple of a word."""
    if matmul.depth % matmul.each == 0:
        return FloatRows(matmul.source, lambda row: _row_start(matmul, row))
    stride = -(-matmul.depth // matmul.each) * matmul.each
    # The kernel reads all elements of a word, so a row must not end within one. TVM refuses a
    # buffer without elements.
    copied = alloc([tirx.max(m, 1) * stride], "float32", "rows", "global")
    with parallel(m, m * stride >= shared_plan.PARALLEL_WORK) as row:
        start = let("start", _row_start(matmul, row))
        for begin, width in blocks(matmul.depth, unit.lanes(32), "k"):
            with vectorize(width) as lane:
                value = load(matmul.source, [start + begin + lane])
                store(copied, value, row * stride + begin + lane)
        for k in range(matmul.depth, stride):
            store(copied, 0, row * stride + k)
    return FloatRows(copied, lambda row: row * stride)


def add_block_totals(matmul: BlockMatmul, left: FloatRows, m: Expr) -> FloatRows:
    """Emit the sums of each row's blocks."""
    block_totals = alloc([tirx.max(m, 1) * matmul.blocks], "float32", "sums", "global")
    full, rest = divmod(matmul.depth, matmul.block)
    with parallel(m, m * matmul.depth >= shared_plan.PARALLEL_WORK) as row:
        start = let("start", left.start(row))
        for block, count in each_block(full, rest, matmul.block):
            acc = alloc([1], "float32", "acc")
            store(acc, 0, 0)
            with serial(count, "k") as k:
                element = load(left.values, [start + block * matmul.block + k])
                store(acc, load(acc, [0]) + element, 0)
            store(block_totals, load(acc, [0]), row * matmul.blocks + block)
    return replace(left, block_totals=block_totals)


def each_block(full: int, rest: int, size: int) -> Iterator[tuple[Expr, int]]:
    """(block, size) of every block, the last of which may be smaller."""
    with serial(full, "block") as block:
        yield block, size
    if rest:
        yield const(full), rest


def _row_start(matmul: BlockMatmul, row: Expr) -> Expr:
    """The index of the row's first element."""
    return substitute(matmul.origin, let_all(position_of(matmul.rows, row)))


def quantize_rows(matmul: BlockMatmul, unit: VectorUnit, m: Expr) -> QuantizedRows | FloatRows:
    """Emit the rows quantized to 8 bits: in each block the greatest magnitude becomes 127. Without
    an instruction for integers they are dequantized again: the same numbers.
    """
    # There is room for a tile's rows after the last one, whose results are not stored: rows are
    # contiguous, so that one address reaches all of them.
    rows, stride = tirx.max(m, 1) + (sizes_of(matmul, unit)[-1] - 1), matmul.blocks * matmul.block
    # With one zero point for all columns, a block's total is corrected in integers, before its
    # scale; with one for each column, after it, in float32.
    dtype, instruction = "int32" if matmul.zeros is None else "float32", instruction_of(unit)
    if instruction is None:
        values = alloc([rows * stride], "float32", "rows", "global")
        result: QuantizedRows | FloatRows = FloatRows(values, lambda row: row * stride)
    else:
        result = QuantizedRows(
            alloc([rows * stride], "int8", "rows", "global"),
            stride,
            alloc([rows * matmul.blocks], "float32", "scales", "global"),
            alloc([rows * matmul.blocks], dtype, "sums", "global"),
            alloc([rows * matmul.blocks], "float32", "shifts", "global")
            if begins_at_shift(matmul, unit)
            else None,
            instruction,
        )
    full, rest = matmul.depth // matmul.block, matmul.depth % matmul.block
    with parallel(m, m * (8 * stride) >= shared_plan.PARALLEL_WORK) as row:
        start = let("start", _row_start(matmul, row))
        with serial(full, "block") as block:
            _quantize_block(matmul, unit, result, (row, start, block), matmul.block)
        if rest:
            _quantize_block(matmul, unit, result, (row, start, const(full)), rest)
    return result


def _quantize_block(
    matmul: BlockMatmul,
    unit: VectorUnit,
    rows: QuantizedRows | FloatRows,
    block_position: tuple[Expr, Expr, Expr],
    count: int,
) -> None:
    """Emit one block of a row, at (row, index of the row's first element, block); the first `count`
    of its elements are the row's.
    """
    row, start, block = block_position
    lanes = min(unit.lanes(32), matmul.block)
    first = let("first", start + block * matmul.block)
    to = row * (matmul.blocks * matmul.block) + block * matmul.block
    full = count // lanes
    greatest = alloc([1], "float32", "greatest")
    bits = [_magnitudes(matmul, first + i * lanes, lanes) for i in range(full)]
    if count % lanes:
        bits.append(_tail_magnitudes(matmul, first, (full * lanes, count), lanes))
    # Magnitudes compare as their bits do, whose maximum needs no case for NaN.
    store(
        greatest,
        tirx.reinterpret("float32", _reduce_lanes("smax", reduce(tirx.max, bits), lanes)),
        0,
    )
    scale, index = load(greatest, [0]), row * matmul.blocks + block
    writer = _BlockWriter(rows, index)
    exact_scale = tirx.reinterpret("int32", scale / tirx.const(127.0, "float32"))
    short_scale = tirx.bitwise_and(exact_scale, tirx.const(~3, "int32"))
    store(writer.buffer, tirx.reinterpret("float32", short_scale), writer.index)
    if isinstance(rows, QuantizedRows) and rows.shifts is not None:
        store(rows.shifts, load(rows.scales, [index]) * tirx.const(-SHIFT, "float32"), index)
    # The scale of a block of zeros has no inverse; its integers are 0 with any.
    inverse = alloc([1], "float32", "inverse")
    store(inverse, 0, 0)
    with when(scale > tirx.const(0, "float32")):
        store(inverse, tirx.const(127.0, "float32") / scale, 0)
    totals = []
    for i in range(full):
        value = load(matmul.source, [prim.Ramp(first + i * lanes, const(1), lanes)])
        totals.append(_quantize_vector(writer, value, load(inverse, [0]), to + i * lanes, lanes))
    tail = _quantize_tail(matmul, writer, (first, to), inverse, (full * lanes, count))
    if isinstance(rows, QuantizedRows):
        total = _reduce_lanes("add", reduce(operator.add, totals), lanes) if totals else None
        _store_sum(matmul, rows, index, total, tail)


class _BlockWriter:
    """The scale of a block, and the conversion of its integers to what is stored."""

    def __init__(self, rows: QuantizedRows | FloatRows, index: Expr) -> None:
        self.values = rows.values
        self.integers = isinstance(rows, QuantizedRows)
        self.buffer = (
            rows.scales if isinstance(rows, QuantizedRows) else alloc([1], "float32", "step")
        )
        self.index = index if self.integers else const(0)

    def convert(self, integers: Expr, lanes: int = 1) -> Expr:
        """The values that are stored for integers."""
        if self.integers:
            return integers.astype("int8" if lanes == 1 else f"int8x{lanes}")
        scale = load(self.buffer, [self.index])
        if lanes == 1:
            return integers.astype("float32") * scale
        return integers.astype(f"float32x{lanes}") * prim.Broadcast(scale, lanes)


def _magnitudes(matmul: BlockMatmul, first: Expr, lanes: int) -> Expr:
    """A vector of the bits of |x|."""
    value = load(matmul.source, [prim.Ramp(first, const(1), lanes)])
    return _positive(tirx.reinterpret(f"int32x{lanes}", value), lanes)


def _positive(bits: Expr, lanes: int) -> Expr:
    mask = tirx.const(0x7FFFFFFF, "int32")
    return tirx.bitwise_and(bits, prim.Broadcast(mask, lanes) if lanes > 1 else mask)


def _tail_magnitudes(matmul: BlockMatmul, first: Expr, ends: tuple[int, int], lanes: int) -> Expr:
    """A vector whose first lanes have the bits of |x| of the elements that fill no vector."""
    # Zeros in the other lanes do not change the maximum.
    values = alloc([lanes], "int32", "tail")
    for step in range(lanes):
        store(values, 0, step)
    for step in range(*ends):
        value = tirx.reinterpret("int32", load(matmul.source, [first + step]))
        store(values, _positive(value, 1), step - ends[0])
    return load(values, [prim.Ramp(const(0), const(1), lanes)])


def _quantize_vector(
    writer: _BlockWriter, value: Expr, inverse: Expr, to: Expr, lanes: int
) -> Expr:
    """Emit the store of a vector of quantized elements, and return the integers."""
    scaled = value * prim.Broadcast(inverse, lanes)
    shifted = scaled + prim.Broadcast(tirx.const(SHIFT, "float32"), lanes)
    base = tirx.reinterpret("int32", tirx.const(SHIFT, "float32"))
    integers = tirx.reinterpret(f"int32x{lanes}", shifted) - prim.Broadcast(base, lanes)
    # Through memory that LLVM keeps in a register: the expression is used twice, and TVM would
    # write it out twice.
    register = alloc([lanes], "int32", "whole")
    indices = prim.Ramp(const(0), const(1), lanes)
    _store_vector(register, integers, indices)
    _store_vector(
        writer.values,
        writer.convert(load(register, [indices]), lanes),
        prim.Ramp(to, const(1), lanes),
    )
    return load(register, [indices])


def _quantize_tail(
    matmul: BlockMatmul,
    writer: _BlockWriter,
    begins: tuple[Expr, Expr],
    inverse: Any,
    ends: tuple[int, int],
) -> Any:
    """Emit the elements that fill no vector, and zeros behind them; return a buffer with their sum,
    None where there are none.
    """
    begin, end = ends
    if begin == end and end == matmul.block:
        return None
    total = alloc([1], "int32", "tail_sum")
    store(total, 0, 0)
    for k in range(begin, end):
        scaled = load(matmul.source, [begins[0] + k]) * load(inverse, [0])
        shifted = tirx.reinterpret("int32", scaled + tirx.const(SHIFT, "float32"))
        base = tirx.reinterpret("int32", tirx.const(SHIFT, "float32"))
        store(writer.values, writer.convert(shifted - base), begins[1] + k)
        store(total, load(total, [0]) + (shifted - base), 0)
    # The kernel multiplies full blocks: the padding of a row must be zeros.
    for k in range(end, matmul.block):
        store(writer.values, 0, begins[1] + k)
    return total


def _store_sum(matmul: BlockMatmul, rows: QuantizedRows, to: Expr, total: Any, tail: Any) -> None:
    parts = [
        part for part in (total, None if tail is None else load(tail, [0])) if part is not None
    ]
    block_sum = reduce(operator.add, parts)
    if matmul.zeros is None:
        # Accumulators begin at the negative zero point of all columns times the integers.
        begin = block_sum * tirx.const(-default_zero(matmul), "int32")
        if rows.shifts is not None:
            begin = begin + tirx.reinterpret("int32", tirx.const(SHIFT, "float32"))
        store(rows.block_totals, begin, to)
    else:
        store(rows.block_totals, block_sum.astype("float32") * load(rows.scales, [to]), to)


def _reduce_lanes(name: str, vector: Expr, lanes: int) -> Expr:
    """The reduction of all lanes of a vector of int32."""
    if lanes == 1:
        return vector
    return tirx.call_llvm_pure_intrin("int32", f"llvm.vector.reduce.{name}.v{lanes}i32", vector)


def _store_vector(buffer: Any, value: Expr, indices: Expr) -> None:
    emit(tirx.BufferStore(buffer, value, [indices]))
