"""Transposition of a square of elements in registers.

Lines are cut into parts of 128 bits, within which every processor has instructions that interleave
two vectors. A vector is loaded from parts of several lines; then vectors are interleaved in pairs,
part by part.
"""

from collections.abc import Callable

from compiler.passes.cpu.shared.lanes import keep_in_register, lanes_of, shuffle
from compiler.tir.exprs import Expr, bits_of

_PART = 128
"""Bits of a part: x86 interleaves longer vectors in parts of so many bits."""


def transpose_square(dtype: str, size: int, part_of: Callable[[int, int, int], Expr]) -> list[Expr]:
    """Emit the transposition of size x size elements, `size` a power of two; return the rows, each
    a load of a buffer.

    part_of(line, first, count): `count` elements of a line from `first` on, as a vector.
    """
    each = min(max(_PART // bits_of(dtype), 1), size)
    rows = []
    for first in range(0, size, each):
        vectors = [
            keep_in_register(
                _join([part_of(line, first, each) for line in range(i, size, each)]), dtype
            )
            for i in range(each)
        ]
        rows += _interleave(vectors, dtype, each)
    return rows


def _interleave(vectors: list[Expr], dtype: str, each: int) -> list[Expr]:
    """Vectors of which number i has element i of each of the parts of `each` elements: a perfect
    shuffle, log2(each) times.
    """
    half = each // 2
    for _ in range(each.bit_length() - 1):
        pairs = list(zip(vectors[:half], vectors[half:], strict=True))
        vectors = [
            keep_in_register(_mix_parts(lhs, rhs, each, start), dtype)
            for lhs, rhs in pairs
            for start in (0, half)
        ]
    return vectors


def _mix_parts(lhs: Expr, rhs: Expr, each: int, start: int) -> Expr:
    """Half of each part of two vectors, from its element `start` on, interleaved."""
    lanes = lanes_of(lhs)
    chosen = [
        part + start + i + side
        for part in range(0, lanes, each)
        for i in range(each // 2)
        for side in (0, lanes)
    ]
    return shuffle([lhs, rhs], chosen)


def _join(parts: list[Expr]) -> Expr:
    """The parts as one vector."""
    count = len(parts) * lanes_of(parts[0])
    return parts[0] if len(parts) == 1 else shuffle(parts, range(count))
