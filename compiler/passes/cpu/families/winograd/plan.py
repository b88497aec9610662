"""Tuning constants of Winograd convolutions.

`python -m benchmarks.kernels --constant winograd` measures them again.
"""

ROWS = 4
"""Tiles of the smallest register tile; scratch memory has multiples of it, so there is no rest."""

TALL_REGISTERS = 32
"""Registers that are enough for the accumulators of twice as many rows."""

CHUNK = 64
"""The most channels of a chunk. The error of a sum grows with its terms: in chunks of 64,
convolutions of 256 channels have 0.5 of the error of one long sum in the same time, in chunks of 32
they have 0.45, and those of 512 channels took 1.1 of the time.
"""

FETCH = 4 * ROWS
"""Rows of register tiles that together prefetch the next panel of weights."""
