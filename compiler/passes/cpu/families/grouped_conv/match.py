"""Convolutions over padded images, as `program.py` writes them."""

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.windowed import PanelConv, read_panel_conv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program

STAGE = "direct_conv"
"""Name of the program's stage, by which the kernel is found."""


def match_grouped_conv(program: Program, unit: VectorUnit) -> PanelConv | Declined:
    """Read the program, whose weights are [blocks, panels, depth, width]."""
    if program.stages[0].name != STAGE:
        return Declined("it is no convolution over a padded image")
    conv = read_panel_conv(program)
    if conv is None or conv.zero is not None:
        return Declined("what follows the convolution cannot be computed in vectors of channels")
    return conv
