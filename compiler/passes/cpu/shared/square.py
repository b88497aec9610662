"""A square of elements from lines to rows, in registers.

Lines are cut into parts of 128 bits, within which every processor has instructions that interleave
two vectors. A vector is put together of parts of several lines, which get to their place as they
are loaded; then vectors are interleaved in pairs, part by part.
"""

from collections.abc import Callable

from compiler.passes.cpu.shared.lanes import kept, lanes_of, shuffled
from compiler.tir.exprs import Expr, bits_of

_PART = 128
"""Bits of a part: x86 interleaves longer vectors in parts of so many bits."""


def transposed(dtype: str, size: int, part_of: Callable[[int, int, int], Expr]) -> list[Expr]:
    """The rows of a square of size x size elements, `size` a power of two: loads of buffers that
    hold a row each.

    part_of(line, first, count): `count` elements of a line from `first` on, as a vector.
    """
    each = min(max(_PART // bits_of(dtype), 1), size)
    rows = []
    for first in range(0, size, each):
        vectors = [
            kept(_beside([part_of(line, first, each) for line in range(i, size, each)]), dtype)
            for i in range(each)
        ]
        rows += _interleaved(vectors, dtype, each)
    return rows


def _interleaved(vectors: list[Expr], dtype: str, each: int) -> list[Expr]:
    """Vector i has element i of each of the vectors' parts of `each` elements, part by part.

    As a pack of cards whose halves are shuffled into each other log2(each) times.
    """
    half = each // 2
    for _ in range(each.bit_length() - 1):
        pairs = list(zip(vectors[:half], vectors[half:], strict=True))
        vectors = [
            kept(_mixed(one, other, each, start), dtype)
            for one, other in pairs
            for start in (0, half)
        ]
    return vectors


def _mixed(one: Expr, other: Expr, each: int, start: int) -> Expr:
    """Half of each part of two vectors, from its element `start` on, one by one in turn."""
    lanes = lanes_of(one)
    places = [
        part + start + i + side
        for part in range(0, lanes, each)
        for i in range(each // 2)
        for side in (0, lanes)
    ]
    return shuffled([one, other], places)


def _beside(parts: list[Expr]) -> Expr:
    """The parts as one vector."""
    count = len(parts) * lanes_of(parts[0])
    return parts[0] if len(parts) == 1 else shuffled(parts, range(count))
