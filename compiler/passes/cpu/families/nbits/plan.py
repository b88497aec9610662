"""Tuning constants of matmuls by block-wise quantized weights.

`python -m benchmarks.kernels --constant nbits` measures them again.
"""

from compiler.targets.vector_unit import LINE

TASK_ROWS = 64
"""Rows of a task: 64 of 4096 bytes are half of a small L2."""

LOOKUP_ROWS = 6
"""Rows whose accumulators of a block fit into 32 registers beside those of the depth, where weights
are in scratch memory.
"""

TALL = 8
"""Rows of a tile of integers that computes one vector of columns after the other."""

SCALES_AHEAD = 4 * LINE
"""The distance of prefetches of scales: beyond some 8 lines they did not help."""

BLOCKS_AHEAD = 4
"""The distance of prefetches of weights where few rows are multiplied: 2 KiB with 4 bits."""

LINES = 2
"""Lines of the next panel that a tile prefetches for each block where rows are many."""
