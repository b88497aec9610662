"""Tuning constants of matmuls and convolutions of 8-bit integers.

`python -m benchmarks.kernels --constant int8` measures them again.
"""

ROWS = 24
"""Rows of a task, which are gathered once for all of its panels."""

PANELS = 16
"""The most panels of a task, for which its rows are gathered once."""

EVEN = 4
"""Tasks that two or four threads share equally."""

STEP = 6
"""Blocks begin at multiples of so many rows: half a tile with AVX-512, else a tile of six."""

SHALLOW = 64
"""Words of a row up to which operands of the epilogue are prefetched: 64 channels to 256 with a
residual of floats took 0.89 of the time, with one of bytes the same time.
"""

BY_COLUMNS = {4: (5, 1), 1: (3, 4)}
"""Rows and columns of a tile in general registers, by the integers of a group."""

UNROLL_BY_COLUMNS = {4: 4, 1: 1}
"""Groups of a row between two looks at the end of a sum, of such tiles: single integers are not
unrolled, since LLVM adds up their products first, for which there are no registers.
"""

ROWS_BYTES = 4096
"""The most bytes that the rows of such a tile take in memory; tiles of longer rows have two."""


def rows_by_columns(group: int, length: int) -> int:
    """Rows of a tile in general registers whose rows have so many groups."""
    rows, _ = BY_COLUMNS[group]
    return rows if rows * length * group * 2 <= ROWS_BYTES else 2


def columns_by_columns(group: int) -> int:
    """Columns of a tile in general registers."""
    return BY_COLUMNS[group][1]
