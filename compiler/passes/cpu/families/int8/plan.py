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

DUAL_UNROLL = 4
"""Groups of a row between two looks at the end of a sum, of tiles for SMLAD."""

DUAL_ROWS = ((5, 4096), (2, 0))


def dual_rows(length: int) -> int:
    """Rows of a tile for SMLAD whose rows have so many groups: the most whose words fit."""
    return next(rows for rows, most in DUAL_ROWS if not most or rows * length * 8 <= most)
