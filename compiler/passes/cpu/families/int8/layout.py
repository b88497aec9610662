"""How an integer matmul or convolution lies in memory: groups of integers, panels, scratch rows."""

from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.passes.cpu.shared.windowed import PanelConv
from compiler.targets.vector_unit import IntegerDot, VectorUnit
from compiler.tir.exprs import dtype_of, require_int

_SIZES = (1, 2, 4, 6, 8, 12)
ROWS = 24
"""Rows of a task, which are gathered once for all its panels."""


@dataclass(frozen=True)
class Layout:
    """The extents of a matmul, and the instruction that computes it."""

    conv: PanelConv
    product: IntegerDot
    lanes: int

    @property
    def group(self) -> int:
        """Integers that one instruction multiplies for each 32 bits."""
        return self.product.group

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of a register tile: as many as are left of a task, rounded up."""
        return tuple(size for size in _SIZES if size <= self.product.rows)

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return require_int(self.conv.column.extent)

    @property
    def depth(self) -> int:
        """Elements at one place of the window."""
        return require_int(self.conv.along.extent)

    @property
    def words(self) -> int:
        """Words of 32 bits that a group of the left side takes."""
        return self.group * np.iinfo(self.product.left).bits // 32 if self.product.scalar else 1

    @property
    def rows(self) -> int:
        """Rows of a task."""
        # Weights in flash are read anew for each tile, and RAM is scarce.
        return self.product.rows if self.product.scalar else ROWS

    @property
    def part(self) -> int:
        """Groups at one place of the window."""
        # Depths that no group divides are filled up with zeros of the weights.
        return -(-self.depth // self.group)

    @property
    def summed(self) -> bool:
        """Whether the sums of the columns stand behind a panel."""
        return np.iinfo(self.product.left).bits == 8

    @property
    def shifted(self) -> bool:
        """Whether each row is shifted by a number of its own to fit."""
        return self.summed and self.conv.zero is None

    @property
    def moved(self) -> int:
        """By how much the bytes of the left side, as the instruction takes them, exceed what they
        stand for.
        """
        assert self.conv.zero is not None
        return self.conv.zero + self.least - int(np.iinfo(dtype_of(self.conv.source)).min)

    @property
    def least(self) -> int:
        """The least integer that the instruction takes on the left."""
        return int(np.iinfo(self.product.left).min)

    @property
    def panels(self) -> int:
        """Panels of the weights."""
        return self.conv.packed[0]

    @property
    def stored(self) -> int:
        """Groups of a panel, with the row of sums."""
        return self.conv.packed[1]

    @property
    def length(self) -> int:
        """Groups of a row."""
        # Integers of 9 bits fit into 16 without a shift.
        return self.stored - (1 if self.summed else 0)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.conv.packed[2]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all panels."""
        return prod(self.conv.packed) * np.iinfo(self.product.right).bits // 8


def layout_of(conv: PanelConv, unit: VectorUnit) -> Layout:
    """The layout for a processor with an instruction for groups of the size that is packed."""
    product = next(one for one in unit.integer_dots if one.group == conv.packed[3])
    return Layout(conv, product, unit.lanes(32))


def describe_tile(conv: PanelConv, unit: VectorUnit) -> str:
    """The register tile, and the integers of a group."""
    layout = layout_of(conv, unit)
    return f"{layout.sizes[-1]}x{layout.width}, groups of {layout.group}"
