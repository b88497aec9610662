"""Vectors of the tables of a matmul by numbers of few bits, and of what is computed of them."""

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.ir.ops.quantized.block_matmul import real_of_half
from compiler.passes.cpu.families.nbits.match import BYTES, NBits, middle_of
from compiler.passes.cpu.families.nbits.rows import Floats
from compiler.targets.vector_unit import LINE, VectorUnit
from compiler.tir.building import alloc, emit, let, prefetch, serial
from compiler.tir.exprs import Expr, bits_of, const, dtype_of, load

_AHEAD = 4 * LINE
"""How far scales are prefetched: less than some 8 lines, beyond which it gained nothing."""

_BLOCKS_AHEAD = 4
"""How far numbers are prefetched where few rows are multiplied: by 4 bits 2 KiB."""

_LINES = 2
"""Lines of the next panel that a tile prefetches for each of its blocks, where rows are many."""


def shares_of(nbits: NBits) -> int:
    """How many shares of a panel, each prefetched by a tile, are all of it."""
    return -(-nbits.words * nbits.width * BYTES // (_LINES * LINE))


class Vectors:
    """Vectors of the tables at places of a panel: all of them, or the one whose number is given."""

    def __init__(
        self, nbits: NBits, unit: VectorUnit, panel: Expr, only: Expr | None = None
    ) -> None:
        # All tables of a panel have the panel's columns innermost, so that one load gives a vector
        # of columns.
        self.nbits, self.lanes, self.panel = nbits, unit.lanes(32), panel
        self.unit, self.only = unit, only
        every = [const(start) for start in range(0, nbits.width, self.lanes)]
        self.starts: list[Expr] = every if only is None else [only * self.lanes]

    def number_words(self, block: Expr, word: Expr | int, start: Expr) -> Expr:
        """The words of a vector of columns as bytes."""
        nbits = self.nbits
        row = (self.panel * nbits.blocks + block) * nbits.words + word
        size = BYTES * self.lanes
        place = prim.Ramp((row * nbits.width + start) * BYTES, const(1), size)
        return load(nbits.numbers, [place])

    def beside(self, table: Any, block: Expr, start: Expr) -> Expr:
        """The scales or zero points of a vector of columns, as float32."""
        place = (self.panel * self.nbits.blocks + block) * self.nbits.width + start
        vector = load(table, [prim.Ramp(place, const(1), self.lanes)])
        if dtype_of(table) == "uint16":
            return self.from_halves(vector)
        return vector if dtype_of(table) == "float32" else vector.astype(f"float32x{self.lanes}")

    def prefetch_beside(self, block: Expr) -> None:
        """Prefetch the scales and zero points of a block to come.

        Hardware prefetches follow the numbers. Scales are a stream that is eight times slower, and
        each of their lines was waited for: a fifth of the time of a row by weights in memory. On
        Zen 4 prefetches to L2 change nothing.
        """
        for table in (self.nbits.scales, self.nbits.zeros):
            if table is None:
                continue
            size = bits_of(dtype_of(table)) // 8
            place = (self.panel * self.nbits.blocks + block) * self.nbits.width
            for start in range(0, self.nbits.width * size, LINE):
                prefetch(table, place + (start + _AHEAD) // size, level=1)

    def prefetch_numbers(self, block: Expr) -> None:
        """Prefetch the numbers of a block to come: at each page hardware prefetches begin anew."""
        row, size = self.nbits.width * BYTES, self.nbits.words * self.nbits.width * BYTES
        first = (self.panel * self.nbits.blocks + block + _BLOCKS_AHEAD) * size
        # One vector of AVX-512 is a line of each row.
        lines = (
            range(0, size, LINE)
            if self.only is None
            else [word * row + self.only * LINE for word in range(self.nbits.words)]
        )
        for line in lines:
            prefetch(self.nbits.numbers, first + line, level=1)

    def prefetch_share(self, share: Expr, block: Expr) -> None:
        """Prefetch the lines of a share of the next panel's numbers into L2 that fall to a block of
        this one.
        """
        nbits = self.nbits
        first = (self.panel + 1) * (nbits.blocks * nbits.words * nbits.width * BYTES)
        number = share * nbits.blocks + block
        for line in range(_LINES):
            prefetch(nbits.numbers, first + (number * _LINES + line) * LINE)

    def from_halves(self, bits: Expr) -> Expr:
        """The bits of float16 as float32."""
        if self.unit.converts_float16:
            half = tirx.reinterpret(f"float16x{self.lanes}", bits)
            return half.astype(f"float32x{self.lanes}")
        return real_of_half(bits, self.lanes)

    def multiply_add(self, one: Expr, other: Expr, added: Expr) -> Expr:
        """one * other + added, rounded once."""
        kind = f"float32x{self.lanes}"
        return tirx.call_llvm_pure_intrin(kind, "llvm.fma", one, other, added)

    def spread(self, value: Expr) -> Expr:
        """A number in all lanes."""
        return prim.Broadcast(value, self.lanes)


class Held:
    """Vectors of one dtype in registers, by number."""

    def __init__(self, count: int, lanes: int, dtype: str, name: str) -> None:
        self.count, self.lanes, self.dtype = count, lanes, dtype
        self.buffer = alloc([count * lanes], dtype, name)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Expr:
        return load(self.buffer, [self._place(index)])

    def __setitem__(self, index: int, value: Expr) -> None:
        emit(tirx.BufferStore(self.buffer, value, [self._place(index)]))

    def _place(self, index: int) -> Expr:
        return prim.Ramp(const(index * self.lanes), const(1), self.lanes)


def zero_sums(vectors: Vectors, rows: int) -> Held:
    """Sums of each row and vector of columns."""
    sums = Held(rows * len(vectors.starts), vectors.lanes, "float32", "sums")
    for i in range(rows * len(vectors.starts)):
        sums[i] = vectors.spread(tirx.const(0.0, "float32"))
    return sums


def offset_of(nbits: NBits, vectors: Vectors, block: Expr, start: Expr, scales: Expr) -> Expr:
    """What is added to the scaled numbers of a vector of columns, or subtracted from them."""
    if nbits.zeros is None:
        return vectors.spread(tirx.const(float(middle_of(nbits)), "float32")) * scales
    beside = vectors.beside(nbits.zeros, block, start)
    return beside if nbits.added else beside * scales


def as_words(data: Expr, lanes: int) -> Expr:
    """Vectors of bytes as vectors of words."""
    return tirx.reinterpret(f"int32x{lanes}", data)


def number_of(nbits: NBits, words: Expr, number: int, lanes: int) -> Expr:
    """Number `number` of each word."""
    if nbits.signed:
        # Up to the highest bits and down again: the second shift copies the sign.
        up = by_lanes(24 - 8 * (number % BYTES), lanes)
        return tirx.shift_right(tirx.shift_left(words, up), by_lanes(24, lanes))
    # The lower halves of a word's bytes are numbers 0 to 3, the upper halves 4 to 7, so that one
    # mask gives the four that an integer product takes together (`_half`).
    moved = shifted(words, number, lanes)
    return tirx.bitwise_and(moved, by_lanes((1 << nbits.form.bits) - 1, lanes))


def numbers_of(
    nbits: NBits, vectors: Vectors, block: Expr, words: int
) -> Iterator[tuple[Expr, Held, int]]:
    """(k, words, number) for every row of a block: the number of the words that is the row's.

    Numbers of a word are taken out of the register one after the other, each for all rows: the
    words are read from memory once, in the order in which they lie.
    """
    lanes = vectors.lanes
    with serial(words, "word") as word:
        held = Held(len(vectors.starts), lanes, "int32", "held")
        for v, start in enumerate(vectors.starts):
            held[v] = as_words(vectors.number_words(block, word, start), lanes)
        first = let("first", block * nbits.block + word * nbits.each)
        for number in range(nbits.each):
            yield first + number, held, number


def shifted(words: Expr, number: int, lanes: int) -> Expr:
    """Number `number` of each word in the lowest bits."""
    shift = 8 * (number % BYTES) + 4 * (number // BYTES)
    return tirx.shift_right(words, by_lanes(shift, lanes)) if shift else words


def by_lanes(count: int, lanes: int) -> Expr:
    """An integer in all lanes."""
    return prim.Broadcast(tirx.const(count, "int32"), lanes)


def add_products(
    vectors: Vectors,
    left: Floats,
    starts: list[Expr],
    k: Expr,
    reals: Held,
    sums: Held,
) -> None:
    """Emit element k of each row times the reals, row by row: an element is spread once for all
    vectors, and needs one register.
    """
    many = len(vectors.starts)
    for i, place in enumerate(starts):
        element = Held(1, vectors.lanes, "float32", "element")
        element[0] = vectors.spread(load(left.values, [place + k]))
        for v in range(many):
            sums[i * many + v] = sums[i * many + v] + element[0] * reals[v]
