"""Register tiles of a matmul by block-wise quantized weights: some rows by a panel of columns.

With float32 rows each vector of weights is dequantized and multiplied by an element of each row;
for many rows the panel is dequantized before. Where one instruction looks up a vector of 4-bit
weights, few rows are multiplied by integers as float32, and scaled at the end of a block. With rows
of 8-bit integers one instruction is a dot product of four weights of each column; at the end of a
block its accumulators are dequantized.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.ir.ops.quantized.block_matmul import HALF
from compiler.passes.cpu.families.nbits.lookup import accumulate_scaled, look_up
from compiler.passes.cpu.families.nbits.match import BYTES, BlockMatmul, default_zero
from compiler.passes.cpu.families.nbits.rows import (
    SHIFT,
    FloatRows,
    QuantizedRows,
    each_block,
    has_lookup,
)
from compiler.passes.cpu.families.nbits.vectors import (
    Registers,
    Vectors,
    as_words,
    load_offset,
    multiply_accumulate,
    unpack_number,
    unpack_words,
    zero_accumulators,
)
from compiler.targets.architecture import BytePairUnit, IntegerDot
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import emit, fresh, serial, steps
from compiler.tir.exprs import Expr, const, load

_INT16_TERMS = {4: 8, 8: 1}
"""By bits, the number of groups of four weights whose products fit into 16 bits: two of each four
are added, so 16 of up to 15 * 127, or two of up to 128 * 127.
"""


class Numbers(NamedTuple):
    """Four weights of each column as the bytes of a word, at `first` of the depth."""

    words: Registers
    first: Expr


def emit_floats(
    matmul: BlockMatmul, unit: VectorUnit, left: FloatRows, rows: list[Expr], panel: Expr
) -> Any:
    """Emit the rows by a panel; return the buffer of accumulators [rows, width]."""
    vectors = Vectors(matmul, unit, panel)
    starts = [fresh(f"start{i}", left.start(row)) for i, row in enumerate(rows)]
    acc = zero_accumulators(vectors, len(rows))
    if has_lookup(matmul, unit):
        for block, words in each_block(*_words_of(matmul), matmul.words):
            vectors.prefetch_tables(block)
            vectors.prefetch_numbers(block)
            parts = zero_accumulators(vectors, len(rows))
            for k, values in look_up(matmul, vectors, block, words):
                multiply_accumulate(vectors, left, starts, k, values, parts)
            accumulate_scaled(matmul, vectors, left, (rows, block), parts, acc)
        return acc.buffer
    for k, values in _dequantize(matmul, vectors):
        multiply_accumulate(vectors, left, starts, k, values, acc)
    return acc.buffer


def _words_of(matmul: BlockMatmul) -> tuple[int, int]:
    """(full blocks of the depth, words of the last one)."""
    return divmod(-(-matmul.depth // matmul.each), matmul.words)


def dequantize_panel(matmul: BlockMatmul, unit: VectorUnit, panel: Expr, dequantized: Any) -> None:
    """Emit dequantized[k, column] of a panel, for `multiply_panel`."""
    vectors = Vectors(matmul, unit, panel)
    for k, values in (
        _dequantize_unscaled(matmul, vectors)
        if has_lookup(matmul, unit)
        else _dequantize(matmul, vectors)
    ):
        for v, start in enumerate(vectors.starts):
            indices = prim.Ramp(k * matmul.width + start, const(1), vectors.lanes)
            emit(tirx.BufferStore(dequantized, values[v], [indices]))


def _dequantize_unscaled(matmul: BlockMatmul, vectors: Vectors) -> Iterator[tuple[Expr, Registers]]:
    """(k, weights) for every row of a panel, without scales and zero points of columns."""
    for block, words in each_block(*_words_of(matmul), matmul.words):
        yield from look_up(matmul, vectors, block, words)


def multiply_panel(
    matmul: BlockMatmul,
    unit: VectorUnit,
    left: FloatRows,
    rows: list[Expr],
    panel: Expr,
    dequantized: Any,
) -> Any:
    """Emit the rows by a dequantized panel; return the buffer of accumulators [rows, width]."""
    vectors = Vectors(matmul, unit, panel)
    starts = [fresh(f"start{i}", left.start(row)) for i, row in enumerate(rows)]
    acc = zero_accumulators(vectors, len(rows))
    if not has_lookup(matmul, unit):
        _accumulate_panel(vectors, left, starts, (const(0), matmul.depth), dequantized, acc)
        return acc.buffer
    for block, size in each_block(*divmod(matmul.depth, matmul.block), matmul.block):
        parts = zero_accumulators(vectors, len(rows))
        _accumulate_panel(vectors, left, starts, (block * matmul.block, size), dequantized, parts)
        accumulate_scaled(matmul, vectors, left, (rows, block), parts, acc)
    return acc.buffer


def _accumulate_panel(
    vectors: Vectors,
    left: FloatRows,
    starts: list[Expr],
    along: tuple[Expr, int],
    dequantized: Any,
    acc: Registers,
) -> None:
    """Emit acc += some elements of each row, (first, count), by a dequantized panel."""
    lanes, (first, count) = vectors.lanes, along
    for step in steps(const(count), vectors.unit.unroll):
        k = first + step
        values = Registers(len(vectors.starts), lanes, "float32", "held")
        for v, start in enumerate(vectors.starts):
            begin = k * vectors.matmul.width + start
            values[v] = load(dequantized, [prim.Ramp(begin, const(1), lanes)])
        multiply_accumulate(vectors, left, starts, k, values, acc)


def _dequantize(matmul: BlockMatmul, vectors: Vectors) -> Iterator[tuple[Expr, Registers]]:
    """(k, dequantized weights) for every row of a panel, a word of each column after the other."""
    lanes, many = vectors.lanes, len(vectors.starts)
    if matmul.form.bits == HALF:
        yield from _convert_float16(matmul, vectors)
        return
    for block, words in each_block(*_words_of(matmul), matmul.words):
        vectors.prefetch_tables(block)
        vectors.prefetch_numbers(block)
        scales = Registers(many, lanes, "float32", "scales")
        offsets = Registers(many, lanes, "float32", "offsets")
        # (number - zero) * scale, as number * scale - zero * scale: one multiply-add for each
        # vector of weights; the second product is computed once a block.
        for v, start in enumerate(vectors.starts):
            scales[v] = vectors.load_table(matmul.scales, block, start)
            offsets[v] = load_offset(matmul, vectors, block, start, scales[v])
        for k, packed, number in unpack_words(matmul, vectors, block, words):
            values = Registers(many, lanes, "float32", "reals")
            for v in range(many if matmul.codebook is not None else 0):
                code = unpack_number(matmul, packed[v], number, lanes)
                values[v] = vectors.look_up(code) * scales[v]
            for v in range(many if matmul.codebook is None else 0):
                integer = unpack_number(matmul, packed[v], number, lanes).astype(f"float32x{lanes}")
                scaled = integer * scales[v]
                values[v] = scaled + offsets[v] if matmul.has_offsets else scaled - offsets[v]
            yield k, values


def _convert_float16(matmul: BlockMatmul, vectors: Vectors) -> Iterator[tuple[Expr, Registers]]:
    """(k, float32 weights) for every row of a panel of float16."""
    lanes = vectors.lanes
    with serial(matmul.depth, "k") as k:
        values = Registers(len(vectors.starts), lanes, "float32", "reals")
        for v, start in enumerate(vectors.starts):
            begin = (vectors.panel * matmul.depth + k) * matmul.width + start
            bits = load(matmul.numbers, [prim.Ramp(begin, const(1), lanes)])
            values[v] = vectors.convert_float16(bits)
        yield k, values


def emit_integers(
    matmul: BlockMatmul, left: QuantizedRows, rows: list[Expr], vectors: Vectors
) -> Any:
    """Emit the quantized rows by some columns of a panel; return the accumulators [rows, width]."""
    acc = zero_accumulators(vectors, len(rows))
    with serial(matmul.blocks, "block") as block:
        vectors.prefetch_tables(block)
        vectors.prefetch_numbers(block)
        add_block(vectors, left, (rows, block), unpack_fours(vectors, block), acc)
    return acc.buffer


def add_block(
    vectors: Vectors,
    left: QuantizedRows,
    rows_and_block: tuple[list[Expr], Expr],
    numbers: Iterator[Numbers],
    acc: Registers,
) -> None:
    """Emit acc += a block of the depth, for (rows, block)."""
    matmul, many, (rows, block) = vectors.matmul, len(vectors.starts), rows_and_block
    totals = Registers(len(rows) * many, vectors.lanes, "int32", "totals")
    for i, row in enumerate(rows):
        begin = _initial_total(matmul, left, row * matmul.blocks + block)
        for v in range(many):
            totals[i * many + v] = vectors.broadcast(begin)
    # Unrolled, so that the totals of a block stay in registers. Each word of a row multiplies all
    # vectors of columns before the next is broadcast: LLVM would keep values that are used again
    # later, and registers are full.
    pairs = None if left.instruction.adds else vectors.unit.byte_pairs
    if pairs is None:
        for four in numbers:
            _accumulate_groups(vectors, left, rows, four, totals)
    else:
        _accumulate_pairs(vectors, left, rows, numbers, pairs, totals)
    _add_scaled_totals(matmul, vectors, left, rows_and_block, totals, acc)


def _add_scaled_totals(
    matmul: BlockMatmul,
    vectors: Vectors,
    left: QuantizedRows,
    rows_and_block: tuple[list[Expr], Expr],
    totals: Registers,
    acc: Registers,
) -> None:
    """Emit acc += the dequantized totals of a block, for (rows, block)."""
    lanes, many, (rows, block) = vectors.lanes, len(vectors.starts), rows_and_block
    scales = Registers(many, lanes, "float32", "scales")
    zeros = None if matmul.zeros is None else Registers(many, lanes, "float32", "zeros")
    for v, start in enumerate(vectors.starts):
        scales[v] = vectors.load_table(matmul.scales, block, start)
        if zeros is not None:
            zeros[v] = vectors.load_table(matmul.zeros, block, start)
    for i, row in enumerate(rows):
        index = row * matmul.blocks + block
        for v in range(many):
            vector = i * many + v
            value = _scale_total(vectors, left, totals[vector], index)
            if zeros is not None:
                offset = zeros[v] * vectors.broadcast(load(left.block_totals, [index]))
                if matmul.has_offsets:
                    acc[vector] = acc[vector] + offset
                else:
                    value = value - offset
            acc[vector] = acc[vector] + value * scales[v]


def _initial_total(matmul: BlockMatmul, left: QuantizedRows, index: Expr) -> Expr:
    """The value that a block's totals begin at."""
    if matmul.zeros is None and default_zero(matmul) != 0:
        return load(left.block_totals, [index])
    return (
        tirx.const(0, "int32")
        if left.shifts is None
        else tirx.reinterpret("int32", tirx.const(SHIFT, "float32"))
    )


def _scale_total(vectors: Vectors, left: QuantizedRows, total: Expr, index: Expr) -> Expr:
    """A block's totals as float32, times the scale of the row's block."""
    kind, scale = f"float32x{vectors.lanes}", vectors.broadcast(load(left.scales, [index]))
    if left.shifts is None:
        return total.astype(kind) * scale
    shift = vectors.broadcast(load(left.shifts, [index]))
    return vectors.multiply_add(tirx.reinterpret(kind, total), scale, shift)


def _accumulate_groups(
    vectors: Vectors, left: QuantizedRows, rows: list[Expr], numbers: Numbers, totals: Registers
) -> None:
    """Emit totals += dot products of four weights of each column, for all rows."""
    lanes, many = vectors.lanes, len(vectors.starts)
    for i, group in _groups(vectors, left, rows, numbers):
        for v in range(many):
            total = totals[i * many + v]
            totals[i * many + v] = _multiply_accumulate(
                left.instruction, total, numbers.words[v], group, lanes
            )


def _accumulate_pairs(
    vectors: Vectors,
    left: QuantizedRows,
    rows: list[Expr],
    numbers: Iterator[Numbers],
    unit: BytePairUnit,
    totals: Registers,
) -> None:
    """Emit totals += dot products of all weights of a block; some of them are accumulated in 16
    bits first.
    """
    matmul, many = vectors.matmul, len(vectors.starts)
    count, run = matmul.block // BYTES, _INT16_TERMS[matmul.form.bits]
    for number, four in enumerate(numbers):
        if number % run == 0:
            partial = Registers(len(totals), 2 * vectors.lanes, "int16", "halves")
        for i, group in _groups(vectors, left, rows, four):
            for v in range(many):
                vector = i * many + v
                terms = _multiply_pairs(vectors, unit, four.words[v], group)
                partial[vector] = partial[vector] + terms if number % run else terms
        if number % run == run - 1 or number == count - 1:
            _add_int16(unit, partial, totals)


def _multiply_pairs(vectors: Vectors, unit: BytePairUnit, numbers: Expr, group: Expr) -> Expr:
    """The products of four weights of each column and a row's four, neighbours added."""
    lanes, magnitudes = vectors.lanes, numbers
    if vectors.matmul.is_signed:
        magnitudes = _with_signs(unit, numbers, numbers, lanes)
        group = _with_signs(unit, group, numbers, lanes)
    arguments = [
        tirx.reinterpret(f"int8x{BYTES * lanes}", operand) for operand in (magnitudes, group)
    ]
    return tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", unit.multiply, *arguments)


def _add_int16(unit: BytePairUnit, partial: Registers, totals: Registers) -> None:
    """Emit totals += the 16-bit accumulators, neighbours added."""
    ones = prim.Broadcast(tirx.const(1, "int16"), partial.lanes)
    for i in range(len(totals)):
        pair_totals = tirx.call_llvm_pure_intrin(
            f"int32x{totals.lanes}", unit.add, partial[i], ones
        )
        totals[i] = totals[i] + pair_totals


def _with_signs(unit: BytePairUnit, words: Expr, others: Expr, lanes: int) -> Expr:
    """The bytes of `words` times the signs of `others`; where both are the same, their magnitudes
    as unsigned bytes.
    """
    size = BYTES * lanes
    arguments = [tirx.reinterpret(f"int8x{size}", operand) for operand in (words, others)]
    return as_words(tirx.call_llvm_pure_intrin(f"int8x{size}", unit.signs, *arguments), lanes)


def unpack_fours(vectors: Vectors, block: Expr) -> Iterator[Numbers]:
    """The weights of a block, unpacked four by four."""
    matmul, lanes, many = vectors.matmul, vectors.lanes, len(vectors.starts)
    for word in range(matmul.words):
        packed = Registers(many, lanes, "int32", "held")
        for v, start in enumerate(vectors.starts):
            packed[v] = as_words(vectors.load_words(block, word, start), lanes)
        for half in range(matmul.each // BYTES):
            numbers = Registers(many, lanes, "int32", "numbers")
            for v in range(many):
                numbers[v] = _unpack_four(matmul, packed[v], half, lanes)
            yield Numbers(numbers, block * matmul.block + (word * matmul.each + half * BYTES))


def _groups(
    vectors: Vectors, left: QuantizedRows, rows: list[Expr], numbers: Numbers
) -> Iterator[tuple[int, Expr]]:
    """(i, integers) of every row: the four that weights are multiplied by, as a word in all
    lanes.
    """
    for i, row in enumerate(rows):
        begin = row * left.stride + numbers.first
        integers = load(left.values, [prim.Ramp(begin, const(1), BYTES)])
        group = Registers(1, vectors.lanes, "int32", "group")
        group[0] = vectors.broadcast(tirx.reinterpret("int32", integers))
        yield i, group[0]


def _unpack_four(matmul: BlockMatmul, words: Expr, half: int, lanes: int) -> Expr:
    """Four weights of each word, as its bytes."""
    if matmul.form.bits == 8:
        return words
    four = prim.Broadcast(tirx.const(4, "int32"), lanes)
    mask = prim.Broadcast(tirx.const(0x0F0F0F0F, "int32"), lanes)
    return tirx.bitwise_and(tirx.shift_right(words, four) if half else words, mask)


def _multiply_accumulate(
    instruction: IntegerDot, total: Expr, numbers: Expr, group: Expr, lanes: int
) -> Expr:
    """The total plus, for each column, the dot product of four weights and four integers."""
    size = BYTES * lanes
    arguments = [tirx.reinterpret(f"int8x{size}", operand) for operand in (numbers, group)]
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction.intrinsic, total, *arguments)
