"""Vectors of block-wise quantized weights, of their tables, and of intermediate results."""

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.ir.ops.quantized.block_matmul import real_of_half
from compiler.passes.cpu.families.nbits import plan
from compiler.passes.cpu.families.nbits.match import BYTES, BlockMatmul, default_zero
from compiler.passes.cpu.families.nbits.rows import FloatRows
from compiler.targets.vector_unit import LINE, VectorUnit
from compiler.tir.building import alloc, emit, let, prefetch, serial
from compiler.tir.exprs import Expr, bits_of, const, dtype_of, load


def shares_of(matmul: BlockMatmul) -> int:
    """The number of shares of a panel, each prefetched by a tile."""
    return -(-matmul.words * matmul.width * BYTES // (plan.LINES * LINE))


class Vectors:
    """The vectors of a panel's columns: all of them, or number `only`."""

    def __init__(
        self, matmul: BlockMatmul, unit: VectorUnit, panel: Expr, only: Expr | None = None
    ) -> None:
        # All tables have the panel's columns innermost, so that one load is a vector of columns.
        self.matmul, self.lanes, self.panel = matmul, unit.lanes(32), panel
        self.unit, self.only = unit, only
        every = [const(start) for start in range(0, matmul.width, self.lanes)]
        self.starts: list[Expr] = every if only is None else [only * self.lanes]

    def load_words(self, block: Expr, word: Expr | int, start: Expr) -> Expr:
        """The packed weights of a vector of columns, as bytes."""
        matmul = self.matmul
        row = (self.panel * matmul.blocks + block) * matmul.words + word
        size = BYTES * self.lanes
        indices = prim.Ramp((row * matmul.width + start) * BYTES, const(1), size)
        return load(matmul.numbers, [indices])

    def load_table(self, table: Any, block: Expr, start: Expr) -> Expr:
        """The scales or zero points of a vector of columns, as float32."""
        begin = (self.panel * self.matmul.blocks + block) * self.matmul.width + start
        vector = load(table, [prim.Ramp(begin, const(1), self.lanes)])
        if dtype_of(table) == "uint16":
            return self.convert_float16(vector)
        return vector if dtype_of(table) == "float32" else vector.astype(f"float32x{self.lanes}")

    def prefetch_tables(self, block: Expr) -> None:
        """Emit prefetches of the scales and zero points of a later block.

        Hardware prefetches follow the weights. Scales are a stream that is eight times slower,
        whose lines stalled: a fifth of the time of a row by weights in memory. On Zen 4 prefetches
        to L2 change nothing.
        """
        for table in (self.matmul.scales, self.matmul.zeros):
            if table is None:
                continue
            size = bits_of(dtype_of(table)) // 8
            begin = (self.panel * self.matmul.blocks + block) * self.matmul.width
            for start in range(0, self.matmul.width * size, LINE):
                prefetch(table, begin + (start + plan.SCALES_AHEAD) // size, level=1)

    def prefetch_numbers(self, block: Expr) -> None:
        """Emit prefetches of the weights of a later block: hardware prefetches stop at each
        page.
        """
        row, size = self.matmul.width * BYTES, self.matmul.words * self.matmul.width * BYTES
        first = (self.panel * self.matmul.blocks + block + plan.BLOCKS_AHEAD) * size
        # A vector of AVX-512 is one line of each row.
        lines = (
            range(0, size, LINE)
            if self.only is None
            else [word * row + self.only * LINE for word in range(self.matmul.words)]
        )
        for line in lines:
            prefetch(self.matmul.numbers, first + line, level=1)

    def prefetch_share(self, share: Expr, block: Expr) -> None:
        """Emit prefetches into L2 of a block's part of a share of the next panel's weights."""
        matmul = self.matmul
        first = (self.panel + 1) * (matmul.blocks * matmul.words * matmul.width * BYTES)
        number = share * matmul.blocks + block
        for line in range(plan.LINES):
            prefetch(matmul.numbers, first + (number * plan.LINES + line) * LINE)

    def convert_float16(self, bits: Expr) -> Expr:
        """Convert the bits of float16 to float32."""
        if self.unit.converts_float16:
            value = tirx.reinterpret(f"float16x{self.lanes}", bits)
            return value.astype(f"float32x{self.lanes}")
        return real_of_half(bits, self.lanes)

    def look_up(self, codes: Expr) -> Expr:
        """The values of a vector of codes, each in the lowest bits of a lane."""
        codebook = self.matmul.codebook
        if not self.unit.looks_up_eight:
            return load(codebook, [codes.astype(f"int64x{self.lanes}")])
        low, high = (
            tirx.call_llvm_pure_intrin(
                f"float32x{self.lanes}",
                "llvm.x86.avx2.permps",
                load(codebook, [prim.Ramp(const(first), const(1), self.lanes)]),
                codes,
            )
            for first in (0, self.lanes)
        )
        return tirx.Select(codes > broadcast_int(self.lanes - 1, self.lanes), high, low)

    def multiply_add(self, lhs: Expr, rhs: Expr, addend: Expr) -> Expr:
        """lhs * rhs + addend, rounded once."""
        kind = f"float32x{self.lanes}"
        return tirx.call_llvm_pure_intrin(kind, "llvm.fma", lhs, rhs, addend)

    def broadcast(self, value: Expr) -> Expr:
        """The value in all lanes."""
        return prim.Broadcast(value, self.lanes)


class Registers:
    """Vectors of one dtype that LLVM keeps in registers, by number."""

    def __init__(self, count: int, lanes: int, dtype: str, name: str) -> None:
        self.count, self.lanes, self.dtype = count, lanes, dtype
        self.buffer = alloc([count * lanes], dtype, name)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Expr:
        return load(self.buffer, [self._indices(index)])

    def __setitem__(self, index: int, value: Expr) -> None:
        emit(tirx.BufferStore(self.buffer, value, [self._indices(index)]))

    def _indices(self, index: int) -> Expr:
        return prim.Ramp(const(index * self.lanes), const(1), self.lanes)


def zero_accumulators(vectors: Vectors, rows: int) -> Registers:
    """Accumulators of each row and vector of columns."""
    acc = Registers(rows * len(vectors.starts), vectors.lanes, "float32", "sums")
    for i in range(rows * len(vectors.starts)):
        acc[i] = vectors.broadcast(tirx.const(0.0, "float32"))
    return acc


def load_offset(
    matmul: BlockMatmul, vectors: Vectors, block: Expr, start: Expr, scales: Expr
) -> Expr:
    """The offsets of a vector of columns, after the scale: added if `has_offsets`, else
    subtracted.
    """
    if matmul.zeros is None:
        return vectors.broadcast(tirx.const(float(default_zero(matmul)), "float32")) * scales
    offset = vectors.load_table(matmul.zeros, block, start)
    return offset if matmul.has_offsets else offset * scales


def as_words(data: Expr, lanes: int) -> Expr:
    """Reinterpret a vector of bytes as words."""
    return tirx.reinterpret(f"int32x{lanes}", data)


def unpack_number(matmul: BlockMatmul, words: Expr, number: int, lanes: int) -> Expr:
    """Weight number `number` of each word."""
    if matmul.is_signed:
        # Up to the highest bits and down again: the second shift copies the sign.
        up = broadcast_int(24 - 8 * (number % BYTES), lanes)
        return tirx.shift_right(tirx.shift_left(words, up), broadcast_int(24, lanes))
    # The lower halves of a word's bytes are weights 0 to 3, the upper halves 4 to 7, so that one
    # mask gives the four that a dot product takes (`_unpack_four`).
    shifted = shift_number(words, number, lanes)
    return tirx.bitwise_and(shifted, broadcast_int((1 << matmul.form.bits) - 1, lanes))


def unpack_words(
    matmul: BlockMatmul, vectors: Vectors, block: Expr, word_count: int
) -> Iterator[tuple[Expr, Registers, int]]:
    """(k, words, number) for every row of a block: the row is weight `number` of the words.

    Words are read from memory once, in order, and their weights unpacked one after the other, each
    once for all rows.
    """
    lanes = vectors.lanes
    with serial(word_count, "word") as word:
        words = Registers(len(vectors.starts), lanes, "int32", "held")
        for v, start in enumerate(vectors.starts):
            words[v] = as_words(vectors.load_words(block, word, start), lanes)
        first = let("first", block * matmul.block + word * matmul.each)
        for number in range(matmul.each):
            yield first + number, words, number


def shift_number(words: Expr, number: int, lanes: int) -> Expr:
    """Shift weight `number` of each word to the lowest bits."""
    shift = 8 * (number % BYTES) + 4 * (number // BYTES)
    return tirx.shift_right(words, broadcast_int(shift, lanes)) if shift else words


def broadcast_int(count: int, lanes: int) -> Expr:
    """An int32 in all lanes."""
    return prim.Broadcast(tirx.const(count, "int32"), lanes)


def multiply_accumulate(
    vectors: Vectors,
    left: FloatRows,
    starts: list[Expr],
    k: Expr,
    values: Registers,
    acc: Registers,
) -> None:
    """Emit acc += element k of each row * values, row by row: an element is broadcast once for all
    vectors, and needs one register.
    """
    many = len(vectors.starts)
    for i, start in enumerate(starts):
        element = Registers(1, vectors.lanes, "float32", "element")
        element[0] = vectors.broadcast(load(left.values, [start + k]))
        for v in range(many):
            acc[i * many + v] = acc[i * many + v] + element[0] * values[v]
