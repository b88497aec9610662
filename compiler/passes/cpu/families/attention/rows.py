"""How rows of queries, keys and values are cut into vectors.

Rows of a multiple of 8 elements are cut into equal vectors. Others are ragged: narrower vectors
follow the whole ones, and none reaches past the row.
"""

from compiler.targets.vector_unit import VectorUnit


def is_ragged(size: int) -> bool:
    """Whether rows of `size` elements are not cut into equal vectors."""
    return size % 8 != 0


def is_filled_up(size: int, unit: VectorUnit) -> bool:
    """Whether rows of values are laid out with zeros behind them, as no whole vector ends them."""
    return is_ragged(size) and size % unit.lanes(32) != 0


def strip_of(size: int, unit: VectorUnit) -> int:
    """Elements of the vectors that a row is cut into: as many as divide it, or of a ragged row as
    many as the widest vector has that it fills.
    """
    lanes = unit.lanes(32)
    while lanes > size if is_ragged(size) else size % lanes:
        lanes //= 2
    return lanes


def pieces(size: int, lanes: int) -> list[tuple[int, int]]:
    """(start, width) of the vectors of a row: as wide as `lanes`, then halves of halves."""
    found, start = [], 0
    while start < size:
        while lanes > size - start:
            lanes //= 2
        found.append((start, lanes))
        start += lanes
    return found


def last_of(size: int, unit: VectorUnit) -> tuple[int, int]:
    """(start, width) of what pairs of vectors leave of a ragged row, filled up to a power of two:
    two vectors at most.
    """
    rest = size % (2 * unit.lanes(32))
    return size - rest, 1 << (rest - 1).bit_length() if rest else 0
