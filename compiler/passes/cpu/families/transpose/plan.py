"""Tuning constants of transposes.

`python -m benchmarks.kernels --constant transpose` measures them again.
"""

READ, WRITTEN = 16, 64
"""Elements of a block along the axis that is read, and along the one that is written."""
