"""Register tiles of a matmul by numbers of few bits: some rows by a panel of columns.

With float32 rows each vector of numbers is unpacked, turned into reals and multiplied by an element
of each row; where there are many rows the whole panel is unpacked before. Where one instruction
looks a vector of 4-bit numbers up as reals, few rows are multiplied by these, and scaled at the end
of a block. With rows of 8-bit integers one instruction multiplies and adds four numbers of each
column; at the end of a block its sums become reals.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.ir.ops.quantized.block_matmul import HALF
from compiler.passes.cpu.families.nbits.looked_up import add_scaled, looked_up
from compiler.passes.cpu.families.nbits.match import BYTES, NBits, middle_of
from compiler.passes.cpu.families.nbits.rows import SHIFTED, Floats, Rounded, blocks_of, looks_up
from compiler.passes.cpu.families.nbits.vectors import (
    Held,
    Vectors,
    add_products,
    as_words,
    number_of,
    numbers_of,
    offset_of,
    zero_sums,
)
from compiler.targets.architecture import BytePairUnit, IntegerDot
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import emit, fresh, serial, steps
from compiler.tir.exprs import Expr, const, load

_PAIRED = {4: 8, 8: 1}
"""By bits, how often four numbers of a column are multiplied until 16 bits may not hold more: two
of each four are neighbours, 16 of up to 15 times 127, or two of up to 128 times 127.
"""


class Numbers(NamedTuple):
    """Four numbers of each column in the bytes of a word, which stand at `first` of the depth."""

    held: Held
    first: Expr


def emit_floats(nbits: NBits, unit: VectorUnit, left: Floats, rows: list[Expr], panel: Expr) -> Any:
    """Emit the rows by a panel; gives the buffer of sums [rows, width]."""
    vectors = Vectors(nbits, unit, panel)
    starts = [fresh(f"start{i}", left.start(row)) for i, row in enumerate(rows)]
    sums = zero_sums(vectors, len(rows))
    if looks_up(nbits, unit):
        for block, words in blocks_of(*_words_of(nbits), nbits.words):
            vectors.prefetch_beside(block)
            vectors.prefetch_numbers(block)
            parts = zero_sums(vectors, len(rows))
            for k, reals in looked_up(nbits, vectors, block, words):
                add_products(vectors, left, starts, k, reals, parts)
            add_scaled(nbits, vectors, left, (rows, block), parts, sums)
        return sums.buffer
    for k, reals in _reals(nbits, vectors):
        add_products(vectors, left, starts, k, reals, sums)
    return sums.buffer


def _words_of(nbits: NBits) -> tuple[int, int]:
    """Whole blocks of the depth, and words of the last one."""
    return divmod(-(-nbits.depth // nbits.each), nbits.words)


def emit_unpacked(nbits: NBits, unit: VectorUnit, panel: Expr, reals: Any) -> None:
    """Emit reals[k, column] of a panel, for `emit_reals`."""
    vectors = Vectors(nbits, unit, panel)
    for k, held in _unscaled(nbits, vectors) if looks_up(nbits, unit) else _reals(nbits, vectors):
        for v, start in enumerate(vectors.starts):
            place = prim.Ramp(k * nbits.width + start, const(1), vectors.lanes)
            emit(tirx.BufferStore(reals, held[v], [place]))


def _unscaled(nbits: NBits, vectors: Vectors) -> Iterator[tuple[Expr, Held]]:
    """As `_reals`, without scales and zero points of columns."""
    for block, words in blocks_of(*_words_of(nbits), nbits.words):
        yield from looked_up(nbits, vectors, block, words)


def emit_reals(
    nbits: NBits, unit: VectorUnit, left: Floats, rows: list[Expr], panel: Expr, reals: Any
) -> Any:
    """Emit the rows by a panel that is unpacked; gives the buffer of sums [rows, width]."""
    vectors = Vectors(nbits, unit, panel)
    starts = [fresh(f"start{i}", left.start(row)) for i, row in enumerate(rows)]
    sums = zero_sums(vectors, len(rows))
    if not looks_up(nbits, unit):
        _add_reals(vectors, left, starts, (const(0), nbits.depth), reals, sums)
        return sums.buffer
    for block, size in blocks_of(*divmod(nbits.depth, nbits.block), nbits.block):
        parts = zero_sums(vectors, len(rows))
        _add_reals(vectors, left, starts, (block * nbits.block, size), reals, parts)
        add_scaled(nbits, vectors, left, (rows, block), parts, sums)
    return sums.buffer


def _add_reals(
    vectors: Vectors,
    left: Floats,
    starts: list[Expr],
    along: tuple[Expr, int],
    reals: Any,
    sums: Held,
) -> None:
    """Emit the products of some elements of each row, (first, count), by the reals of a panel."""
    lanes, (first, count) = vectors.lanes, along
    for step in steps(const(count), vectors.unit.unroll):
        k = first + step
        held = Held(len(vectors.starts), lanes, "float32", "held")
        for v, start in enumerate(vectors.starts):
            place = k * vectors.nbits.width + start
            held[v] = load(reals, [prim.Ramp(place, const(1), lanes)])
        add_products(vectors, left, starts, k, held, sums)


def _reals(nbits: NBits, vectors: Vectors) -> Iterator[tuple[Expr, Held]]:
    """(k, reals) for every row of a panel, a word of each column after the other."""
    lanes, many = vectors.lanes, len(vectors.starts)
    if nbits.form.bits == HALF:
        yield from _halves(nbits, vectors)
        return
    for block, words in blocks_of(*_words_of(nbits), nbits.words):
        vectors.prefetch_beside(block)
        vectors.prefetch_numbers(block)
        scales = Held(many, lanes, "float32", "scales")
        offsets = Held(many, lanes, "float32", "offsets")
        # (number - zero) * scale, as number * scale - zero * scale: one multiply-add for each
        # vector of numbers, the second product once a block.
        for v, start in enumerate(vectors.starts):
            scales[v] = vectors.beside(nbits.scales, block, start)
            offsets[v] = offset_of(nbits, vectors, block, start, scales[v])
        for k, held, number in numbers_of(nbits, vectors, block, words):
            reals = Held(many, lanes, "float32", "reals")
            for v in range(many):
                integer = number_of(nbits, held[v], number, lanes).astype(f"float32x{lanes}")
                apart = integer * scales[v]
                reals[v] = apart + offsets[v] if nbits.added else apart - offsets[v]
            yield k, reals


def _halves(nbits: NBits, vectors: Vectors) -> Iterator[tuple[Expr, Held]]:
    """As `_reals`, of float16."""
    lanes = vectors.lanes
    with serial(nbits.depth, "k") as k:
        reals = Held(len(vectors.starts), lanes, "float32", "reals")
        for v, start in enumerate(vectors.starts):
            place = (vectors.panel * nbits.depth + k) * nbits.width + start
            bits = load(nbits.numbers, [prim.Ramp(place, const(1), lanes)])
            reals[v] = vectors.from_halves(bits)
        yield k, reals


def emit_integers(nbits: NBits, left: Rounded, rows: list[Expr], vectors: Vectors) -> Any:
    """Emit the rounded rows by some columns of a panel; gives the buffer of sums [rows, width]."""
    sums = zero_sums(vectors, len(rows))
    with serial(nbits.blocks, "block") as block:
        vectors.prefetch_beside(block)
        vectors.prefetch_numbers(block)
        add_block(vectors, left, (rows, block), quadruples(vectors, block), sums)
    return sums.buffer


def add_block(
    vectors: Vectors,
    left: Rounded,
    at: tuple[list[Expr], Expr],
    numbers: Iterator[Numbers],
    sums: Held,
) -> None:
    """Emit the products of a block, for (rows, block), added to the sums."""
    nbits, many, (rows, block) = vectors.nbits, len(vectors.starts), at
    totals = Held(len(rows) * many, vectors.lanes, "int32", "totals")
    for i, row in enumerate(rows):
        begin = _begin(nbits, left, row * nbits.blocks + block)
        for v in range(many):
            totals[i * many + v] = vectors.spread(begin)
    # Unrolled, so that the totals of a block stay in registers. Each word of a row multiplies all
    # vectors of columns before the next is spread: LLVM would keep what is used again later, and
    # registers are full.
    pairs = None if left.product.adds else vectors.unit.byte_pairs
    if pairs is None:
        for one in numbers:
            _add_products(vectors, left, rows, one, totals)
    else:
        _add_pairs(vectors, left, rows, numbers, pairs, totals)
    _add_rounded(nbits, vectors, left, at, totals, sums)


def _add_rounded(
    nbits: NBits,
    vectors: Vectors,
    left: Rounded,
    at: tuple[list[Expr], Expr],
    totals: Held,
    sums: Held,
) -> None:
    """Emit the sums of a block's integers, for (rows, block), scaled, added to those of reals."""
    lanes, many, (rows, block) = vectors.lanes, len(vectors.starts), at
    scales = Held(many, lanes, "float32", "scales")
    zeros = None if nbits.zeros is None else Held(many, lanes, "float32", "zeros")
    for v, start in enumerate(vectors.starts):
        scales[v] = vectors.beside(nbits.scales, block, start)
        if zeros is not None:
            zeros[v] = vectors.beside(nbits.zeros, block, start)
    for i, row in enumerate(rows):
        place = row * nbits.blocks + block
        for v in range(many):
            at_v = i * many + v
            real = _scaled(vectors, left, totals[at_v], place)
            if zeros is not None:
                beside = zeros[v] * vectors.spread(load(left.sums, [place]))
                if nbits.added:
                    sums[at_v] = sums[at_v] + beside
                else:
                    real = real - beside
            sums[at_v] = sums[at_v] + real * scales[v]


def _begin(nbits: NBits, left: Rounded, place: Expr) -> Expr:
    """What a block's sums begin at."""
    if nbits.zeros is None and middle_of(nbits) != 0:
        return load(left.sums, [place])
    return (
        tirx.const(0, "int32")
        if left.shifts is None
        else tirx.reinterpret("int32", tirx.const(SHIFTED, "float32"))
    )


def _scaled(vectors: Vectors, left: Rounded, total: Expr, place: Expr) -> Expr:
    """The sums of a block's integers as reals, times the scale of the row's block."""
    kind, scale = f"float32x{vectors.lanes}", vectors.spread(load(left.scales, [place]))
    if left.shifts is None:
        return total.astype(kind) * scale
    shift = vectors.spread(load(left.shifts, [place]))
    return vectors.multiply_add(tirx.reinterpret(kind, total), scale, shift)


def _add_products(
    vectors: Vectors, left: Rounded, rows: list[Expr], numbers: Numbers, totals: Held
) -> None:
    """Emit the products of four numbers of each column, for all rows."""
    lanes, many = vectors.lanes, len(vectors.starts)
    for i, group in _groups(vectors, left, rows, numbers):
        for v in range(many):
            total = totals[i * many + v]
            totals[i * many + v] = _multiplied(left.product, total, numbers.held[v], group, lanes)


def _add_pairs(
    vectors: Vectors,
    left: Rounded,
    rows: list[Expr],
    numbers: Iterator[Numbers],
    unit: BytePairUnit,
    totals: Held,
) -> None:
    """As `_add_products`, of all numbers of a block: some products at a time are added up in 16
    bits before the totals.
    """
    nbits, many = vectors.nbits, len(vectors.starts)
    count, run = nbits.block // BYTES, _PAIRED[nbits.form.bits]
    for number, one in enumerate(numbers):
        if number % run == 0:
            halves = Held(len(totals), 2 * vectors.lanes, "int16", "halves")
        for i, group in _groups(vectors, left, rows, one):
            for v in range(many):
                at = i * many + v
                products = _paired(vectors, unit, one.held[v], group)
                halves[at] = halves[at] + products if number % run else products
        if number % run == run - 1 or number == count - 1:
            _add_halves(unit, halves, totals)


def _paired(vectors: Vectors, unit: BytePairUnit, numbers: Expr, group: Expr) -> Expr:
    """The products of four numbers of each column by a row's, in neighbouring pairs."""
    lanes, sizes = vectors.lanes, numbers
    if vectors.nbits.signed:
        sizes = _with_signs(unit, numbers, numbers, lanes)
        group = _with_signs(unit, group, numbers, lanes)
    arguments = [tirx.reinterpret(f"int8x{BYTES * lanes}", one) for one in (sizes, group)]
    return tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", unit.multiply, *arguments)


def _add_halves(unit: BytePairUnit, halves: Held, totals: Held) -> None:
    """Emit sums of 16 bits, neighbours added up, added to the totals."""
    ones = prim.Broadcast(tirx.const(1, "int16"), halves.lanes)
    for i in range(len(totals)):
        sums = tirx.call_llvm_pure_intrin(f"int32x{totals.lanes}", unit.add, halves[i], ones)
        totals[i] = totals[i] + sums


def _with_signs(unit: BytePairUnit, words: Expr, others: Expr, lanes: int) -> Expr:
    """The bytes of words with the signs of others: magnitudes where they are their own, as unsigned
    bytes.
    """
    size = BYTES * lanes
    arguments = [tirx.reinterpret(f"int8x{size}", one) for one in (words, others)]
    return as_words(tirx.call_llvm_pure_intrin(f"int8x{size}", unit.signs, *arguments), lanes)


def quadruples(vectors: Vectors, block: Expr) -> Iterator[Numbers]:
    """The numbers of a block, four by four, taken out of the words that hold them."""
    nbits, lanes, many = vectors.nbits, vectors.lanes, len(vectors.starts)
    for word in range(nbits.words):
        held = Held(many, lanes, "int32", "held")
        for v, start in enumerate(vectors.starts):
            held[v] = as_words(vectors.number_words(block, word, start), lanes)
        for half in range(nbits.each // BYTES):
            numbers = Held(many, lanes, "int32", "numbers")
            for v in range(many):
                numbers[v] = _half(nbits, held[v], half, lanes)
            yield Numbers(numbers, block * nbits.block + (word * nbits.each + half * BYTES))


def _groups(
    vectors: Vectors, left: Rounded, rows: list[Expr], numbers: Numbers
) -> Iterator[tuple[int, Expr]]:
    """(i, integers) of every row: the four that the numbers are multiplied by, as a word spread
    over the columns.
    """
    for i, row in enumerate(rows):
        place = row * left.stride + numbers.first
        given = load(left.values, [prim.Ramp(place, const(1), BYTES)])
        group = Held(1, vectors.lanes, "int32", "group")
        group[0] = vectors.spread(tirx.reinterpret("int32", given))
        yield i, group[0]


def _half(nbits: NBits, words: Expr, half: int, lanes: int) -> Expr:
    """Four numbers of each word in the bytes of it."""
    if nbits.form.bits == 8:
        return words
    four = prim.Broadcast(tirx.const(4, "int32"), lanes)
    mask = prim.Broadcast(tirx.const(0x0F0F0F0F, "int32"), lanes)
    return tirx.bitwise_and(tirx.shift_right(words, four) if half else words, mask)


def _multiplied(product: IntegerDot, total: Expr, numbers: Expr, group: Expr, lanes: int) -> Expr:
    """The total plus, for each column, four numbers multiplied by four integers of a row."""
    size = BYTES * lanes
    arguments = [tirx.reinterpret(f"int8x{size}", one) for one in (numbers, group)]
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", product.intrinsic, total, *arguments)
