"""The left side of a matmul by numbers of few bits: rows of floats, as they lie or copied, or
rounded to 8 bits with a scale for each block, as integers or as floats again.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.nbits.match import NBits, middle_of, product_of
from compiler.passes.cpu.shared.sharing import PARALLEL_WORK, position_of
from compiler.targets.architecture import IntegerDot
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    blocks,
    emit,
    let,
    let_all,
    serial,
    share_out,
    store,
    vectorize,
    when,
)
from compiler.tir.exprs import Expr, const, load, substitute

SHIFTED = 1.5 * 2.0**23
"""Added to a number below 2^22, its sum's lowest bits are the number rounded to an even integer;
and an integer below 2^22 added to its bits makes the sum of both.
"""


@dataclass(frozen=True)
class Floats:
    """values[start(row) + k]: element k of a row, zeros behind its end up to whole words.

    sums: of the elements of each block, [rows, blocks], where numbers are looked up and columns
    have zero points of their own.
    """

    values: Any
    start: Callable[[Expr], Expr]
    sums: Any = None


@dataclass(frozen=True)
class Rounded:
    """Rows of `stride` integers of 8 bits, zeros behind their end.

    scales: by which the integers of a block are multiplied, of 22 bits; sums: of the integers of a
    block, times less the zero point where all columns have one, else times the scale; shifts:
    -`SHIFTED` times the scale, where `shifts_totals`; product: what multiplies them.
    """

    values: Any
    stride: int
    scales: Any
    sums: Any
    shifts: Any
    product: IntegerDot


def sizes_of(nbits: NBits, unit: VectorUnit) -> tuple[int, ...]:
    """Rows of a register tile: as many as are left of a task, rounded up."""
    if looks_up(nbits, unit):
        # Beside the sums of the depth registers hold those of a block.
        return (1, 2, 4)
    if not nbits.form.rounded or product_of(unit) is None:
        return tuple(size for size in (1, 2, 4, 8) if size == 1 or size * 2 + 6 <= unit.registers)
    # By one vector, integers of a row are spread for each, which instructions of AVX-512 do as they
    # multiply.
    return (*paired_sizes(unit), TALL) if unit.looks_up else paired_sizes(unit)


def paired_sizes(unit: VectorUnit) -> tuple[int, ...]:
    """Rows of a tile of integers by two vectors of columns: each row takes the totals of a block
    beside the sums of the depth, of both; beside them are words, numbers and what is common to
    them.
    """
    return tuple(size for size in (1, 2, 4, 6) if size == 1 or size * 4 + 6 <= unit.registers)


def looks_up(nbits: NBits, unit: VectorUnit) -> bool:
    """Whether one instruction turns a vector of the numbers into reals, which multiply floats."""
    floats = not nbits.form.rounded or product_of(unit) is None
    return unit.looks_up and nbits.form.bits == 4 and floats


def shifts_totals(nbits: NBits, unit: VectorUnit) -> bool:
    """Whether integer sums of a block begin at the bits of `SHIFTED`, so that one multiply-add
    makes them reals times a row's scale: (SHIFTED + total) * scale - SHIFTED * scale, whose
    products are exact for a scale of 22 bits. A total must be below 2^22.
    """
    return unit.fma and nbits.block * 127 << nbits.form.bits < 1 << 22


TALL = 8
"""Rows of a tile of integers by one vector of columns after the other."""


def float_rows(nbits: NBits, unit: VectorUnit, m: Expr) -> Floats:
    """The rows as they lie, or emit a copy where their words are not whole."""
    if nbits.depth % nbits.each == 0:
        return Floats(nbits.source, lambda row: _place(nbits, row))
    stride = -(-nbits.depth // nbits.each) * nbits.each
    # The kernel takes the numbers of a word one after the other: a row must not end within one. A
    # buffer of no rows would be refused.
    copied = alloc([tirx.max(m, 1) * stride], "float32", "rows", "global")
    for row in share_out(m, m * stride >= PARALLEL_WORK):
        start = let("start", _place(nbits, row))
        for at, width in blocks(nbits.depth, unit.lanes(32), "k"):
            with vectorize(width) as lane:
                value = load(nbits.source, [start + at + lane])
                store(copied, value, row * stride + at + lane)
        for step in range(nbits.depth, stride):
            store(copied, 0, row * stride + step)
    return Floats(copied, lambda row: row * stride)


def with_sums(nbits: NBits, left: Floats, m: Expr) -> Floats:
    """Emit the sums of the blocks of each row."""
    sums = alloc([tirx.max(m, 1) * nbits.blocks], "float32", "sums", "global")
    whole, rest = divmod(nbits.depth, nbits.block)
    for row in share_out(m, m * nbits.depth >= PARALLEL_WORK):
        start = let("start", left.start(row))
        for block, count in blocks_of(whole, rest, nbits.block):
            acc = alloc([1], "float32", "acc")
            store(acc, 0, 0)
            with serial(count, "k") as k:
                element = load(left.values, [start + block * nbits.block + k])
                store(acc, load(acc, [0]) + element, 0)
            store(sums, load(acc, [0]), row * nbits.blocks + block)
    return replace(left, sums=sums)


def blocks_of(whole: int, rest: int, size: int) -> Iterator[tuple[Expr, int]]:
    """(block, its size) of every block, the last of which may be smaller."""
    with serial(whole, "block") as block:
        yield block, size
    if rest:
        yield const(whole), rest


def _place(nbits: NBits, row: Expr) -> Expr:
    """Where the row begins in memory."""
    return substitute(nbits.place, let_all(position_of(nbits.rows, row)))


def rounded_rows(nbits: NBits, unit: VectorUnit, m: Expr) -> Rounded | Floats:
    """Emit the rows rounded to 8 bits: in each block the greatest magnitude becomes 127. Without an
    instruction for integers, their products with the scales: the same numbers.
    """
    # Behind the last row there is room for a tile's, whose sums nobody stores: its rows lie one
    # behind the other, and one address is that of all.
    rows, stride = tirx.max(m, 1) + (sizes_of(nbits, unit)[-1] - 1), nbits.blocks * nbits.block
    # With one zero point for all columns a block's sum is corrected in integers, before its scale;
    # with one a column, after it, by a product of floats.
    kind, product = "int32" if nbits.zeros is None else "float32", product_of(unit)
    if product is None:
        values = alloc([rows * stride], "float32", "rows", "global")
        found: Rounded | Floats = Floats(values, lambda row: row * stride)
    else:
        found = Rounded(
            alloc([rows * stride], "int8", "rows", "global"),
            stride,
            alloc([rows * nbits.blocks], "float32", "scales", "global"),
            alloc([rows * nbits.blocks], kind, "sums", "global"),
            alloc([rows * nbits.blocks], "float32", "shifts", "global")
            if shifts_totals(nbits, unit)
            else None,
            product,
        )
    whole, rest = nbits.depth // nbits.block, nbits.depth % nbits.block
    for row in share_out(m, m * (8 * stride) >= PARALLEL_WORK):
        start = let("start", _place(nbits, row))
        with serial(whole, "block") as block:
            _round_block(nbits, unit, found, (row, start, block), nbits.block)
        if rest:
            _round_block(nbits, unit, found, (row, start, const(whole)), rest)
    return found


def _round_block(
    nbits: NBits, unit: VectorUnit, found: Rounded | Floats, at: tuple[Expr, Expr, Expr], count: int
) -> None:
    """Emit one block of a row, `at` being the number of the row, its place and the block's number;
    the first `count` of its elements are the row's.
    """
    row, start, block = at
    lanes = min(unit.lanes(32), nbits.block)
    first = let("first", start + block * nbits.block)
    to = row * (nbits.blocks * nbits.block) + block * nbits.block
    whole = count // lanes
    greatest = alloc([1], "float32", "greatest")
    bits = [_magnitudes(nbits, first + i * lanes, lanes) for i in range(whole)]
    if count % lanes:
        bits.append(_tail_magnitudes(nbits, first, (whole * lanes, count), lanes))
    # Magnitudes compare as their bits do, whose greatest LLVM finds without a case for NaN.
    store(greatest, tirx.reinterpret("float32", _across("smax", reduce(tirx.max, bits), lanes)), 0)
    scale, place = load(greatest, [0]), row * nbits.blocks + block
    step = _Step(found, place)
    exact = tirx.reinterpret("int32", scale / tirx.const(127.0, "float32"))
    short = tirx.bitwise_and(exact, tirx.const(~3, "int32"))
    store(step.buffer, tirx.reinterpret("float32", short), step.place)
    if isinstance(found, Rounded) and found.shifts is not None:
        store(found.shifts, load(found.scales, [place]) * tirx.const(-SHIFTED, "float32"), place)
    # A block of zeros has no inverse; its integers are zeros by any.
    inverse = alloc([1], "float32", "inverse")
    store(inverse, 0, 0)
    with when(scale > tirx.const(0, "float32")):
        store(inverse, tirx.const(127.0, "float32") / scale, 0)
    totals = []
    for i in range(whole):
        value = load(nbits.source, [prim.Ramp(first + i * lanes, const(1), lanes)])
        totals.append(_rounded(step, value, load(inverse, [0]), to + i * lanes, lanes))
    tail = _round_tail(nbits, step, (first, to), inverse, (whole * lanes, count))
    if isinstance(found, Rounded):
        total = _across("add", reduce(operator.add, totals), lanes) if totals else None
        _keep_sum(nbits, found, place, total, tail)


class _Step:
    """By what the integers of a block are multiplied, and how its elements are written."""

    def __init__(self, found: Rounded | Floats, place: Expr) -> None:
        self.values = found.values
        self.integers = isinstance(found, Rounded)
        self.buffer = found.scales if isinstance(found, Rounded) else alloc([1], "float32", "step")
        self.place = place if self.integers else const(0)

    def stored(self, whole: Expr, lanes: int = 1) -> Expr:
        """What is written of integers."""
        if self.integers:
            return whole.astype("int8" if lanes == 1 else f"int8x{lanes}")
        step = load(self.buffer, [self.place])
        if lanes == 1:
            return whole.astype("float32") * step
        return whole.astype(f"float32x{lanes}") * prim.Broadcast(step, lanes)


def _magnitudes(nbits: NBits, first: Expr, lanes: int) -> Expr:
    """A vector of the bits of |x|."""
    value = load(nbits.source, [prim.Ramp(first, const(1), lanes)])
    return _positive(tirx.reinterpret(f"int32x{lanes}", value), lanes)


def _positive(bits: Expr, lanes: int) -> Expr:
    mask = tirx.const(0x7FFFFFFF, "int32")
    return tirx.bitwise_and(bits, prim.Broadcast(mask, lanes) if lanes > 1 else mask)


def _tail_magnitudes(nbits: NBits, first: Expr, ends: tuple[int, int], lanes: int) -> Expr:
    """The same of the elements that fill no vector, in the first lanes of one."""
    # Zeros in the other lanes: no magnitude is less.
    values = alloc([lanes], "int32", "tail")
    for step in range(lanes):
        store(values, 0, step)
    for step in range(*ends):
        value = tirx.reinterpret("int32", load(nbits.source, [first + step]))
        store(values, _positive(value, 1), step - ends[0])
    return load(values, [prim.Ramp(const(0), const(1), lanes)])


def _rounded(step: _Step, value: Expr, inverse: Expr, to: Expr, lanes: int) -> Expr:
    """Emit a vector of integers and give it."""
    scaled = value * prim.Broadcast(inverse, lanes)
    shifted = scaled + prim.Broadcast(tirx.const(SHIFTED, "float32"), lanes)
    base = tirx.reinterpret("int32", tirx.const(SHIFTED, "float32"))
    whole = tirx.reinterpret(f"int32x{lanes}", shifted) - prim.Broadcast(base, lanes)
    # Through memory that LLVM keeps in a register: the expression is used twice, and TVM would
    # write it out twice.
    held = alloc([lanes], "int32", "whole")
    place = prim.Ramp(const(0), const(1), lanes)
    _store_vector(held, whole, place)
    _store_vector(
        step.values, step.stored(load(held, [place]), lanes), prim.Ramp(to, const(1), lanes)
    )
    return load(held, [place])


def _round_tail(
    nbits: NBits,
    step: _Step,
    at: tuple[Expr, Expr],
    inverse: Any,
    ends: tuple[int, int],
) -> Any:
    """Emit the elements that fill no vector, and zeros behind them; gives a buffer with their sum,
    None where there are none.
    """
    begin, end = ends
    if begin == end and end == nbits.block:
        return None
    total = alloc([1], "int32", "tail_sum")
    store(total, 0, 0)
    for k in range(begin, end):
        scaled = load(nbits.source, [at[0] + k]) * load(inverse, [0])
        shifted = tirx.reinterpret("int32", scaled + tirx.const(SHIFTED, "float32"))
        base = tirx.reinterpret("int32", tirx.const(SHIFTED, "float32"))
        store(step.values, step.stored(shifted - base), at[1] + k)
        store(total, load(total, [0]) + (shifted - base), 0)
    # The kernel multiplies whole blocks: what lies behind the row must add nothing.
    for k in range(end, nbits.block):
        store(step.values, 0, at[1] + k)
    return total


def _keep_sum(nbits: NBits, found: Rounded, to: Expr, total: Any, tail: Any) -> None:
    parts = [
        part for part in (total, None if tail is None else load(tail, [0])) if part is not None
    ]
    whole = reduce(operator.add, parts)
    if nbits.zeros is None:
        # Less the one zero point of all columns times the integers, which sums begin at.
        begin = whole * tirx.const(-middle_of(nbits), "int32")
        if found.shifts is not None:
            begin = begin + tirx.reinterpret("int32", tirx.const(SHIFTED, "float32"))
        store(found.sums, begin, to)
    else:
        store(found.sums, whole.astype("float32") * load(found.scales, [to]), to)


def _across(name: str, vector: Expr, lanes: int) -> Expr:
    """All lanes of a vector of int32 combined."""
    if lanes == 1:
        return vector
    return tirx.call_llvm_pure_intrin("int32", f"llvm.vector.reduce.{name}.v{lanes}i32", vector)


def _store_vector(buffer: Any, value: Expr, place: Expr) -> None:
    emit(tirx.BufferStore(buffer, value, [place]))
