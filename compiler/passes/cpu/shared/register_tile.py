"""Sizes of the register tile of a matmul on a vector unit, and of the panels of its weights.

A register tile is some rows by a few vectors of accumulators that stay in registers over the whole
depth. Each step of the depth reads one row of the panel, as wide as the tile, and one element of
each row of the left side.
"""

from collections.abc import Iterator, Sequence

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import otherwise, strips, when
from compiler.tir.exprs import Expr

# Time of a column by the vectors of its panel, relative to panels of three: 100 rows on Sapphire
# Rapids.
_TIME = {2: 1.06, 3: 1.0, 4: 1.02}


def rows_for(unit: VectorUnit, vectors: int) -> int:
    """The number of rows of `vectors` vectors of accumulators that fit into the registers, beside
    one row of the panel and one broadcast element of the left side.

    Where instructions are not scheduled for registers, as in V8, registers also hold an element of
    every row, a product before its addition, and one value of V8: 4x8 in WebAssembly. 6x8 took V8
    1.4 times as long, with five accumulators spilled in each step.
    """
    if not unit.scheduled:
        return max((unit.registers - vectors - 2) // (vectors + 1), 2)
    # With 32 registers one more row would fit. It is left out: an accumulator that LLVM spills
    # costs more than a row gains. With four vectors it would be one of six rows.
    spare = 1 if unit.registers >= 32 and vectors < 4 else 0
    return max((unit.registers - vectors - 1) // vectors - spare, 2)


def register_tile(unit: VectorUnit) -> tuple[int, int]:
    """(MR, NR): 6x16 on AVX2, 13x32 on AVX-512, 4x8 in WebAssembly."""
    vectors = 2
    return rows_for(unit, vectors), unit.lanes(32) * vectors


def panel_widths(unit: VectorUnit) -> tuple[int, ...]:
    """The widths that a panel may have: two or three vectors, or four where kernels are
    memory-bound, as a tile of 6x64 loads the least for each multiplication.
    """
    # Two rows of three vectors do not fit 8 registers.
    lanes = unit.lanes(32)
    if unit.memory_bound:
        return 2 * lanes, 3 * lanes, 4 * lanes
    return (2 * lanes, 3 * lanes) if unit.registers >= 16 else (2 * lanes,)


def panel_width(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel: the width that leaves the fewest columns of the last panel empty.

    Of equal widths the wider one, three vectors, except without fused multiply-adds. Where kernels
    are memory-bound, the width whose panels take the least time in sum, empty columns included.
    """
    if unit.memory_bound:
        lanes = unit.lanes(32)
        return min(
            panel_widths(unit),
            key=lambda width: -(-columns // width) * width * _TIME[width // lanes],
        )
    # A 4x24 tile takes 20 instructions for 12 multiply-adds where 6x16 takes 22, which gained up to
    # 5 %. Without fused multiply-adds each multiplication takes a register of its own first.
    wide = unit.fma and unit.scheduled
    return min(
        panel_widths(unit),
        key=lambda width: (-(-columns // width) * width, -width if wide else width),
    )


def narrowest(unit: VectorUnit) -> int:
    """Columns of the narrowest panel: half of a vector of 512 bits, as Zen 4 multiplies two halves
    in the time of a whole one, and Sapphire Rapids two of either.
    """
    lanes = unit.lanes(32)
    return lanes // 2 if lanes >= 16 else lanes


def panel_columns(panel: Expr, columns: int, width: int, lanes: int) -> Iterator[Expr]:
    """The columns of a panel: `width`, fewer in the last one of `columns`."""
    full, rest = columns // width, columns % width
    if rest == 0:
        yield from strips(width, lanes, "lane")
        return
    with when(panel < full):
        yield from strips(width, lanes, "lane")
    with otherwise():
        yield from strips(rest, lanes, "lane")


def least(sizes: Sequence[int], needed: Expr) -> Iterator[int]:
    """The first of the rising sizes that is at least `needed`, else the last: each in a branch."""
    size, *larger = sizes
    if not larger:
        yield size
        return
    with when(needed <= size):
        yield size
    with otherwise():
        yield from least(larger, needed)
