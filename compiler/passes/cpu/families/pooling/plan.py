"""Tuning constants of pooling and depthwise convolutions.

`python -m benchmarks.kernels --constant pooling` measures them again.
"""

ROWS = 2
"""Rows computed at once where registers hold the weights of a window beside the accumulators: each
element of the image is read once for both.
"""

MOST_TAPS = 25
"""The most taps for which several rows are computed at once: each is code of its own."""

MOST_VECTORS = 9
"""The most vectors of channels of a task: its part of some rows and its weights stay in L1."""

TASK_ROWS = 8
"""The most rows of a task."""

LEAST_TASKS = 12
"""The least number of tasks, rows and vectors permitting: threads get about the same."""

MOST_PARTS = 8
"""The most tasks that the channels of a single row are divided into."""

COLUMNS = 4
"""Columns computed at once: each weight is loaded once for so many accumulators, whose additions
are independent of each other.
"""

MANY_TAPS = 8
"""The number of taps along a row from which on twice as many columns are computed at once."""

BYTE_COLUMNS = 3
"""Columns computed at once of bytes in words: six accumulators, three words of weights, one of the
image and two addresses fit into 13 registers.
"""
