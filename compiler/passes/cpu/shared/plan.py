"""Tuning constants that families of kernels share.

`python -m benchmarks.kernels --constant shared` measures them again.
"""

PARALLEL_WORK = 1 << 17
"""Operations below which starting the other threads costs more than it saves."""

VECTORS = 4
"""Vectors of neighbouring results that are reduced side by side: they hide the latency of an
addition, and what is read of a row is as many cache lines in a row.
"""

AHEAD = 4096
"""Bytes by which prefetches run ahead of the steps that read weights once."""

MOST_STRANDS = 4
"""The largest number of strands: each takes one more instruction for every vector."""
