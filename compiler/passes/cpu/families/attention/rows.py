"""The vectors that rows of queries, keys and values are cut into.

Rows of a multiple of 8 elements are cut into equal vectors. Others are ragged: their last vectors
are narrower, so that none reaches past the row.
"""

from compiler.targets.vector_unit import VectorUnit


def is_ragged(size: int) -> bool:
    """True if rows of `size` elements are not cut into equal vectors."""
    return size % 8 != 0


def is_filled_up(size: int, unit: VectorUnit) -> bool:
    """True if values are packed with zeros behind each row, as its last vector is not full."""
    return is_ragged(size) and size % unit.lanes(32) != 0


def strip_of(size: int, unit: VectorUnit) -> int:
    """The lanes of the widest vectors that a row is cut into: they divide the row, or of a ragged
    row are no more than it has elements.
    """
    lanes = unit.lanes(32)
    while lanes > size if is_ragged(size) else size % lanes:
        lanes //= 2
    return lanes


def pieces(size: int, lanes: int) -> list[tuple[int, int]]:
    """(start, width) of the vectors of a row: of `lanes`, then of ever smaller powers of two."""
    vectors, start = [], 0
    while start < size:
        while lanes > size - start:
            lanes //= 2
        vectors.append((start, lanes))
        start += lanes
    return vectors


def last_of(size: int, unit: VectorUnit) -> tuple[int, int]:
    """(start, width) of the rest of a ragged row after all pairs of vectors; the width, at most two
    vectors, is rounded up to a power of two.
    """
    rest = size % (2 * unit.lanes(32))
    return size - rest, 1 << (rest - 1).bit_length() if rest else 0
