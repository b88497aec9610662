"""Tuning constants of matmuls of two computed operands.

`python -m benchmarks.kernels --constant matmul_dynamic` measures them again.
"""

MOST_ROWS = 4
"""Rows of a strip at most: each row reads its own elements of the left side, unpacked."""
