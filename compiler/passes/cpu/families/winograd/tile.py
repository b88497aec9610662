"""Sizes of blocks of tiles and of register tiles of Winograd's form."""

from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import POINTS, strip_of
from compiler.passes.cpu.shared.register_tile import panel_width
from compiler.targets.vector_unit import VectorUnit

ROWS = 4
"""Tiles of the smallest register tile; scratch memory has multiples of it, so there is no rest."""
_TALL_REGISTERS = 32
"""Registers that are enough for the accumulators of twice as many rows."""
CHUNK = 64
"""The most channels of a chunk. The error of a sum grows with its terms: in chunks of 64,
convolutions of 256 channels have 0.5 of the error of one long sum in the same time, in chunks of 32
they have 0.45, and those of 512 channels took 1.1 of the time.
"""


def sizes_of(unit: VectorUnit) -> tuple[int, ...]:
    """The numbers of tiles that a register tile may have."""
    return (ROWS, 2 * ROWS) if unit.registers >= _TALL_REGISTERS else (ROWS,)


def width_of(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel: where kernels are memory-bound, two vectors or three, whichever leaves
    fewer columns empty. A tile of 8x32 reads half as many weights per multiplication as one of
    4x64.
    """
    if not unit.memory_bound:
        return panel_width(unit, columns)
    widths = (2 * unit.lanes(32), 3 * unit.lanes(32))
    return min(widths, key=lambda width: -(-columns // width) * width)


def chunk_of(depth: int) -> int:
    """Channels that are accumulated in registers before they are added to other chunks; all where
    none of their divisors is near CHUNK.
    """
    sizes = range(CHUNK, CHUNK // 2 - 1, -1)
    return next((size for size in sizes if depth % size == 0), depth)


def tiles_of(unit: VectorUnit, depth: int, columns: int) -> int:
    """The most tiles of a block, 12 to 32: both scratch buffers about fill L2."""
    room = unit.l2 // (4 * POINTS * (depth + columns))
    return min(max(room // ROWS * ROWS, 3 * ROWS), 8 * ROWS)


def most_column_tiles(winograd: Winograd, unit: VectorUnit) -> int:
    """The largest number of tiles, all in one block, for which two threads have half of the columns
    each; 0 where the weights stay in L2, or are one panel.
    """
    weights = 4 * POINTS * winograd.depth * winograd.padded
    strip = strip_of(winograd.columns, unit.lanes(32))
    if winograd.padded == winograd.width or winograd.width % strip or weights <= unit.l2:
        return 0
    return tiles_of(unit, winograd.depth, winograd.padded // 2)
