"""Tuning constants of programs that no other family takes.

`python -m benchmarks.kernels --constant generic` measures them again.
"""

STRIP = 2048
"""Elements of one task when a single long axis is shared out: full vectors and cache lines."""

STACK = 1024
"""The most elements between two stages that are on the stack: a thread's stack may be small."""

ROWS_AT_ONCE, SHORT = 4, 1024
"""Rows that a stage is computed for before the next stage, and the most elements of such a row."""

MANY, FEWEST = 8, 4
"""The number of images from which on channels are not divided into strips, as a thread with all
channels reads memory in order; and the least number of strips of an image with many channels.
"""

SMALL = 256
"""Fewer elements than this are too few for a task."""
