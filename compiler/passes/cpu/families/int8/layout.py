"""Memory layout of an integer matmul or convolution: groups of integers, panels, scratch rows."""

from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.passes.cpu.families.int8 import plan
from compiler.passes.cpu.shared.windowed import PanelConv
from compiler.targets.vector_unit import IntegerDot, VectorUnit
from compiler.tir.exprs import dtype_of, require_int

DUAL_WORDS = 2
"""Words of a group where each is a general register: elements 0 and 2, and 1 and 3."""
_SIZES = (1, 2, 4, 6, 8, 12)


@dataclass(frozen=True)
class Layout:
    """The extents of a matmul, and the instruction that computes it."""

    conv: PanelConv
    instruction: IntegerDot
    lanes: int

    @property
    def group(self) -> int:
        """Integers that one instruction multiplies for each 32 bits."""
        return self.instruction.group

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of rows that a register tile may have."""
        return tuple(size for size in _SIZES if size <= self.instruction.rows)

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return require_int(self.conv.column.extent)

    @property
    def depth(self) -> int:
        """Elements at one position of the window."""
        return require_int(self.conv.along.extent)

    @property
    def words(self) -> int:
        """Words of a group of the left side, each of 32 bits or less."""
        if not self.instruction.scalar:
            return 1
        return -(-self.group * np.iinfo(self.instruction.left).bits // 32)

    @property
    def word(self) -> str:
        """The type of those, which a group of one integer does not fill."""
        return self.instruction.left if self.instruction.scalar and self.group == 1 else "int32"

    @property
    def is_by_columns(self) -> bool:
        """True if both operands are general registers: tiles are a few columns."""
        return self.instruction.scalar and self.words <= DUAL_WORDS

    @property
    def rows(self) -> int:
        """Rows of a task."""
        # Weights in flash are read again for each tile, and RAM is scarce.
        return self.instruction.rows if self.instruction.scalar else plan.ROWS

    @property
    def part(self) -> int:
        """Groups at one position of the window."""
        # Depths that are no multiple of the group are padded with zeros of the weights.
        return -(-self.depth // self.group)

    @property
    def has_column_totals(self) -> bool:
        """True if a panel ends with the sums of its columns."""
        return np.iinfo(self.instruction.left).bits == 8

    @property
    def is_shifted(self) -> bool:
        """True if each row is shifted by a number of its own to fit into 8 bits."""
        return self.has_column_totals and self.conv.zero is None

    @property
    def left_zero(self) -> int:
        """The zero point of the left side's bytes as the instruction takes them."""
        assert self.conv.zero is not None
        return self.conv.zero + self.least - int(np.iinfo(dtype_of(self.conv.source)).min)

    @property
    def least(self) -> int:
        """The least integer that the instruction takes as left operand."""
        return int(np.iinfo(self.instruction.left).min)

    @property
    def panels(self) -> int:
        """Panels of the weights."""
        return self.conv.packed[0]

    @property
    def stored(self) -> int:
        """Groups of a column in a panel, with the row of sums."""
        return self.conv.packed[1]

    @property
    def length(self) -> int:
        """Groups of a row."""
        # Integers of 9 bits fit into 16 without a shift.
        return self.stored - (1 if self.has_column_totals else 0)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.conv.packed[2]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all panels."""
        return prod(self.conv.packed) * np.iinfo(self.instruction.right).bits // 8


def layout_of(conv: PanelConv, unit: VectorUnit) -> Layout:
    """The layout for a processor with an instruction for groups of the size that is packed."""
    instruction = next(each for each in unit.integer_dots if each.group == conv.packed[3])
    return Layout(conv, instruction, unit.lanes(32))


def describe_tile(conv: PanelConv, unit: VectorUnit) -> str:
    """The register tile, and the integers of a group."""
    layout = layout_of(conv, unit)
    if layout.is_by_columns:
        rows = plan.rows_by_columns(layout.group, layout.length)
        return f"{rows}x{plan.columns_by_columns(layout.group)}, groups of {layout.group}"
    return f"{layout.sizes[-1]}x{layout.width}, groups of {layout.group}"
