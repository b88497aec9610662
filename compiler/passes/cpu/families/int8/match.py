"""Matmuls and convolutions of small integers, as `compiler.passes.pack.integer` writes them."""

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.windowed import PanelConv, read_panel_conv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program

STAGE = "integer_product"
"""Name of the program's stage, by which the kernel is found."""


def match_int8(program: Program, _unit: VectorUnit) -> PanelConv | Declined:
    """Read the program, whose weights are [panels, groups of a row, width, group].

    With a left side of 8 bits, a row of the columns' sums follows the groups.
    """
    if program.stages[0].name != STAGE:
        return Declined("its weights are not packed integers")
    conv = read_panel_conv(program)
    return conv or Declined("what follows the matmul cannot be computed in vectors of columns")
