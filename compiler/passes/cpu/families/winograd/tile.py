"""Sizes of blocks of tiles and of register tiles of Winograd's form."""

from compiler.passes.cpu.families.winograd import plan
from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import POINTS, strip_of
from compiler.passes.cpu.shared.register_tile import panel_width
from compiler.targets.vector_unit import VectorUnit


def sizes_of(unit: VectorUnit) -> tuple[int, ...]:
    """The numbers of tiles that a register tile may have."""
    return (plan.ROWS, 2 * plan.ROWS) if unit.registers >= plan.TALL_REGISTERS else (plan.ROWS,)


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
    sizes = range(plan.CHUNK, plan.CHUNK // 2 - 1, -1)
    return next((size for size in sizes if depth % size == 0), depth)


def tiles_of(unit: VectorUnit, depth: int, columns: int) -> int:
    """The most tiles of a block, 12 to 32: both scratch buffers about fill L2."""
    room = unit.l2 // (4 * POINTS * (depth + columns))
    return min(max(room // plan.ROWS * plan.ROWS, 3 * plan.ROWS), 8 * plan.ROWS)


def most_column_tiles(winograd: Winograd, unit: VectorUnit) -> int:
    """The largest number of tiles, all in one block, for which two threads have half of the columns
    each; 0 where the weights stay in L2, or are one panel.
    """
    weights = 4 * POINTS * winograd.depth * winograd.padded
    strip = strip_of(winograd.columns, unit.lanes(32))
    if winograd.padded == winograd.width or winograd.width % strip or weights <= unit.l2:
        return 0
    return tiles_of(unit, winograd.depth, winograd.padded // 2)
