"""How large the blocks of tiles and the register tiles of Winograd's form are."""

from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import POINTS, strip_of
from compiler.passes.cpu.shared.register_tile import panel_width
from compiler.targets.vector_unit import VectorUnit

ROWS = 4
"""Tiles of the least register tile; scratch memory holds multiples of it, so no rest is needed."""
_TALL_REGISTERS = 32
"""Registers that hold the sums of twice as many rows."""
CHUNK = 64
"""Most channels of a chunk. The error of a sum grows with its terms: in chunks of 64, convolutions
of 256 channels have 0.5 of the error of one long sum in the same time, in chunks of 32 they have
0.45, and those of 512 channels took 1.1 of the time.
"""


def sizes_of(unit: VectorUnit) -> tuple[int, ...]:
    """Tiles of a register tile: as many as are left of a block, rounded up."""
    return (ROWS, 2 * ROWS) if unit.registers >= _TALL_REGISTERS else (ROWS,)


def width_of(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel: of two vectors or three the width that leaves fewer columns empty, where
    a cache is outrun. A tile of 8x32 reads half as many weights a multiplication as one of 4x64.
    """
    if not unit.memory_bound:
        return panel_width(unit, columns)
    widths = (2 * unit.lanes(32), 3 * unit.lanes(32))
    return min(widths, key=lambda width: -(-columns // width) * width)


def chunk_of(depth: int) -> int:
    """Channels that are summed in registers before they are added to the sums of other chunks; all
    where none of their divisors is near CHUNK.
    """
    sizes = range(CHUNK, CHUNK // 2 - 1, -1)
    return next((size for size in sizes if depth % size == 0), depth)


def tiles_of(unit: VectorUnit, depth: int, columns: int) -> int:
    """Tiles of a block at most: both scratch buffers about fill L2, within 12 to 32 tiles."""
    room = unit.l2 // (4 * POINTS * (depth + columns))
    return min(max(room // ROWS * ROWS, 3 * ROWS), 8 * ROWS)


def tiles_by_halves(winograd: Winograd, unit: VectorUnit) -> int:
    """Up to how many tiles, all in one block, are shared out by halves of the columns; 0 where the
    weights rest in L2, or are one panel.
    """
    weights = 4 * POINTS * winograd.depth * winograd.padded
    strip = strip_of(winograd.columns, unit.lanes(32))
    if winograd.padded == winograd.width or winograd.width % strip or weights <= unit.l2:
        return 0
    return tiles_of(unit, winograd.depth, winograd.padded // 2)
