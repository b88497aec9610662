"""Register tiles of a matmul by numbers of few bits: some rows by a panel of columns.

With float32 rows each vector of numbers is unpacked, turned into reals and multiplied by an element
of each row; where there are many rows the whole panel is unpacked before. With rows of 8-bit
integers one instruction multiplies and adds four numbers of each column; at the end of a block its
sums become reals.
"""

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.ir.ops.nbits import HALF, real_of_half
from compiler.passes.cpu.families.nbits.match import BYTES, NBits
from compiler.passes.cpu.families.nbits.rows import Floats, Rounded
from compiler.targets.architecture import IntegerProduct
from compiler.targets.vector_unit import LINE, VectorUnit
from compiler.tir.building import alloc, emit, fresh, let, prefetch, serial, steps
from compiler.tir.exprs import Expr, bits_of, const, dtype_of, load

_AHEAD = 4 * LINE
"""How far scales are prefetched: less than some 8 lines, beyond which it gained nothing."""


class _Vectors:
    """Vectors of the tables at places of a panel."""

    def __init__(self, nbits: NBits, unit: VectorUnit, panel: Expr) -> None:
        # All tables of a panel have the panel's columns innermost, so that one load gives a vector
        # of columns.
        self.nbits, self.lanes, self.panel = nbits, unit.lanes(32), panel
        self.converts = unit.converts_halves
        self.starts = range(0, nbits.width, self.lanes)

    def number_words(self, block: Expr, word: Expr | int, start: int) -> Expr:
        """The words of a vector of columns as bytes."""
        nbits = self.nbits
        row = (self.panel * nbits.blocks + block) * nbits.words + word
        size = BYTES * self.lanes
        place = prim.Ramp((row * nbits.width + start) * BYTES, const(1), size)
        return load(nbits.numbers, [place])

    def beside(self, table: Any, block: Expr, start: int) -> Expr:
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

    def from_halves(self, bits: Expr) -> Expr:
        """The bits of float16 as float32."""
        if self.converts:
            half = tirx.reinterpret(f"float16x{self.lanes}", bits)
            return half.astype(f"float32x{self.lanes}")
        return real_of_half(bits, self.lanes)

    def spread(self, value: Expr) -> Expr:
        """A number in all lanes."""
        return prim.Broadcast(value, self.lanes)


class _Held:
    """Vectors of one dtype in registers, by number."""

    def __init__(self, count: int, lanes: int, dtype: str, name: str) -> None:
        self.lanes, self.dtype = lanes, dtype
        self.buffer = alloc([count * lanes], dtype, name)

    def __getitem__(self, index: int) -> Expr:
        return load(self.buffer, [self._place(index)])

    def __setitem__(self, index: int, value: Expr) -> None:
        emit(tirx.BufferStore(self.buffer, value, [self._place(index)]))

    def _place(self, index: int) -> Expr:
        return prim.Ramp(const(index * self.lanes), const(1), self.lanes)


def emit_floats(nbits: NBits, unit: VectorUnit, left: Floats, rows: list[Expr], panel: Expr) -> Any:
    """Emit the rows by a panel; gives the buffer of sums [rows, width]."""
    vectors = _Vectors(nbits, unit, panel)
    starts = [fresh(f"start{i}", left.start(row)) for i, row in enumerate(rows)]
    sums = _zeros(vectors, len(rows))
    for k, reals in _reals(nbits, vectors):
        _add_products(vectors, left, starts, k, reals, sums)
    return sums.buffer


def emit_unpacked(nbits: NBits, unit: VectorUnit, panel: Expr, reals: Any) -> None:
    """Emit reals[k, column] of a panel, for `emit_reals`."""
    vectors = _Vectors(nbits, unit, panel)
    for k, held in _reals(nbits, vectors):
        for v, start in enumerate(vectors.starts):
            place = prim.Ramp(k * nbits.width + start, const(1), vectors.lanes)
            emit(tirx.BufferStore(reals, held[v], [place]))


def emit_reals(nbits: NBits, unit: VectorUnit, left: Floats, rows: list[Expr], reals: Any) -> Any:
    """Emit the rows by a panel that is unpacked; gives the buffer of sums [rows, width]."""
    vectors = _Vectors(nbits, unit, const(0))
    lanes, many = vectors.lanes, len(vectors.starts)
    starts = [fresh(f"start{i}", left.start(row)) for i, row in enumerate(rows)]
    sums = _zeros(vectors, len(rows))
    for k in steps(const(nbits.depth), unit.together):
        held = _Held(many, lanes, "float32", "held")
        for v, start in enumerate(vectors.starts):
            held[v] = load(reals, [prim.Ramp(k * nbits.width + start, const(1), lanes)])
        _add_products(vectors, left, starts, k, held, sums)
    return sums.buffer


def _add_products(
    vectors: _Vectors, left: Floats, starts: list[Expr], k: Expr, reals: _Held, sums: _Held
) -> None:
    """Emit element k of each row times the reals, row by row: an element is spread once for all
    vectors, and needs one register.
    """
    many = len(vectors.starts)
    for i, place in enumerate(starts):
        element = _Held(1, vectors.lanes, "float32", "element")
        element[0] = vectors.spread(load(left.values, [place + k]))
        for v in range(many):
            sums[i * many + v] = sums[i * many + v] + element[0] * reals[v]


def _zeros(vectors: _Vectors, rows: int) -> _Held:
    """Sums of each row and vector of columns."""
    sums = _Held(rows * len(vectors.starts), vectors.lanes, "float32", "sums")
    for i in range(rows * len(vectors.starts)):
        sums[i] = vectors.spread(tirx.const(0.0, "float32"))
    return sums


def _reals(nbits: NBits, vectors: _Vectors) -> Iterator[tuple[Expr, _Held]]:
    """(k, reals) for every row of a panel, a word of each column after the other."""
    lanes, many = vectors.lanes, len(vectors.starts)
    if nbits.form.bits == HALF:
        yield from _halves(nbits, vectors)
        return
    whole, rest = divmod(-(-nbits.depth // nbits.each), nbits.words)
    for block, words in _blocks(nbits, whole, rest):
        vectors.prefetch_beside(block)
        scales = _Held(many, lanes, "float32", "scales")
        offsets = _Held(many, lanes, "float32", "offsets")
        # (number - zero) * scale, as number * scale - zero * scale: one multiply-add for each
        # vector of numbers, the second product once a block.
        for v, start in enumerate(vectors.starts):
            scales[v] = vectors.beside(nbits.scales, block, start)
            offsets[v] = _offset(nbits, vectors, block, start, scales[v])
        # Numbers of a word are taken out of the register one after the other, each for all rows:
        # the words are read from memory once, in the order in which they lie.
        with serial(words, "word") as word:
            held = _Held(many, lanes, "int32", "held")
            for v, start in enumerate(vectors.starts):
                held[v] = _as_words(vectors.number_words(block, word, start), lanes)
            first = let("first", block * nbits.block + word * nbits.each)
            for number in range(nbits.each):
                reals = _Held(many, lanes, "float32", "reals")
                for v in range(many):
                    integer = _number(nbits, held[v], number, lanes).astype(f"float32x{lanes}")
                    apart = integer * scales[v]
                    reals[v] = apart + offsets[v] if nbits.added else apart - offsets[v]
                yield first + number, reals


def _halves(nbits: NBits, vectors: _Vectors) -> Iterator[tuple[Expr, _Held]]:
    """As `_reals`, of float16."""
    lanes = vectors.lanes
    with serial(nbits.depth, "k") as k:
        reals = _Held(len(vectors.starts), lanes, "float32", "reals")
        for v, start in enumerate(vectors.starts):
            place = (vectors.panel * nbits.depth + k) * nbits.width + start
            bits = load(nbits.numbers, [prim.Ramp(place, const(1), lanes)])
            reals[v] = vectors.from_halves(bits)
        yield k, reals


def _blocks(nbits: NBits, whole: int, rest: int) -> Iterator[tuple[Expr, int]]:
    """(block, words) of every block, the last of which may have fewer words."""
    with serial(whole, "block") as block:
        yield block, nbits.words
    if rest:
        yield const(whole), rest


def _offset(nbits: NBits, vectors: _Vectors, block: Expr, start: int, scales: Expr) -> Expr:
    """What is added to the scaled numbers of a vector of columns, or subtracted from them."""
    if nbits.zeros is None:
        return vectors.spread(tirx.const(float(_middle(nbits)), "float32")) * scales
    beside = vectors.beside(nbits.zeros, block, start)
    return beside if nbits.added else beside * scales


def _middle(nbits: NBits) -> int:
    """The zero point of numbers that have none of their own, as they are stored."""
    return 0 if nbits.signed else 1 << (nbits.form.bits - 1)


def _as_words(data: Expr, lanes: int) -> Expr:
    return tirx.reinterpret(f"int32x{lanes}", data)


def _number(nbits: NBits, words: Expr, number: int, lanes: int) -> Expr:
    """Number `number` of each word."""

    def by(count: int) -> Expr:
        return prim.Broadcast(tirx.const(count, "int32"), lanes)

    byte, upper = number % BYTES, number // BYTES
    if nbits.signed:
        # Up to the highest bits and down again: the second shift copies the sign.
        return tirx.shift_right(tirx.shift_left(words, by(24 - 8 * byte)), by(24))
    # The lower halves of a word's bytes are numbers 0 to 3, the upper halves 4 to 7, so that one
    # mask gives the four that an integer product takes together (`_half`).
    shift = 8 * byte + 4 * upper
    moved = tirx.shift_right(words, by(shift)) if shift else words
    return tirx.bitwise_and(moved, by((1 << nbits.form.bits) - 1))


def emit_integers(
    nbits: NBits, unit: VectorUnit, left: Rounded, rows: list[Expr], panel: Expr
) -> Any:
    """Emit the rounded rows by a panel; gives the buffer of sums [rows, width]."""
    vectors = _Vectors(nbits, unit, panel)
    lanes, many = vectors.lanes, len(vectors.starts)
    sums = _zeros(vectors, len(rows))
    with serial(nbits.blocks, "block") as block:
        vectors.prefetch_beside(block)
        # One vector of columns after the other: sums of a block for all rows and both vectors would
        # not fit into 16 registers beside the sums of the depth.
        for v, start in enumerate(vectors.starts):
            totals = _Held(len(rows), lanes, "int32", "totals")
            for i, row in enumerate(rows):
                totals[i] = vectors.spread(_begin(nbits, left, row * nbits.blocks + block))
            # Unrolled, so that the totals of a block stay in registers.
            for word in range(nbits.words):
                _add_word(nbits, vectors, left, rows, (block, word, start), totals)
            scale = _Held(1, lanes, "float32", "scale")
            scale[0] = vectors.beside(nbits.scales, block, start)
            if nbits.zeros is not None:
                zero = _Held(1, lanes, "float32", "zero")
                zero[0] = vectors.beside(nbits.zeros, block, start)
            for i, row in enumerate(rows):
                place = row * nbits.blocks + block
                real = totals[i].astype(f"float32x{lanes}")
                real = real * vectors.spread(load(left.scales, [place]))
                if nbits.added:
                    beside = zero[0] * vectors.spread(load(left.sums, [place]))
                    sums[i * many + v] = sums[i * many + v] + beside
                elif nbits.zeros is not None:
                    real = real - zero[0] * vectors.spread(load(left.sums, [place]))
                sums[i * many + v] = sums[i * many + v] + real * scale[0]
    return sums.buffer


def _begin(nbits: NBits, left: Rounded, place: Expr) -> Expr:
    """What a block's sums begin at: less the one zero point of all columns times the integers."""
    if nbits.zeros is not None or _middle(nbits) == 0:
        return tirx.const(0, "int32")
    return load(left.sums, [place]) * tirx.const(-_middle(nbits), "int32")


def _add_word(
    nbits: NBits,
    vectors: _Vectors,
    left: Rounded,
    rows: list[Expr],
    at: tuple[Expr, int, int],
    totals: _Held,
) -> None:
    """Emit the products of one word of each column, at (block, word, column), for all rows."""
    lanes, (block, word, start) = vectors.lanes, at
    data = vectors.number_words(block, word, start)
    held = _Held(1, lanes, "int32", "held")
    held[0] = _as_words(data, lanes)
    for half in range(nbits.each // BYTES):
        numbers = _Held(1, lanes, "int32", "numbers")
        numbers[0] = _half(nbits, held[0], half, lanes)
        for i, row in enumerate(rows):
            place = row * left.stride + block * nbits.block + (word * nbits.each + half * BYTES)
            given = load(left.values, [prim.Ramp(place, const(1), BYTES)])
            # Four integers of the row are one word, spread over the columns: each column multiplies
            # them by its own four numbers.
            group = vectors.spread(tirx.reinterpret("int32", given))
            totals[i] = _multiplied(left.product, totals[i], numbers[0], group, lanes)


def _half(nbits: NBits, words: Expr, half: int, lanes: int) -> Expr:
    """Four numbers of each word in the bytes of it."""
    if nbits.form.bits == 8:
        return words
    four = prim.Broadcast(tirx.const(4, "int32"), lanes)
    mask = prim.Broadcast(tirx.const(0x0F0F0F0F, "int32"), lanes)
    return tirx.bitwise_and(tirx.shift_right(words, four) if half else words, mask)


def _multiplied(
    product: IntegerProduct, total: Expr, numbers: Expr, group: Expr, lanes: int
) -> Expr:
    """The total plus, for each column, four numbers multiplied by four integers of a row."""
    size = BYTES * lanes
    arguments = [tirx.reinterpret(f"int8x{size}", one) for one in (numbers, group)]
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", product.intrinsic, total, *arguments)
