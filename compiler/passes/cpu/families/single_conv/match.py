"""Convolutions with one output channel, as `pack/conv.py` writes them."""

from dataclasses import replace

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.loop_nest import is_short
from compiler.passes.cpu.shared.register_tile import narrowest
from compiler.passes.cpu.shared.windowed import PanelConv, read_panel_conv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import as_int, const, require_int
from compiler.tir.flat import stride
from compiler.tir.stages import Axis, Program

STAGE = "single_conv"
"""Name of the program's stage, by which the kernel is found."""


def match_single_conv(program: Program, unit: VectorUnit) -> PanelConv | Declined:
    """Read the program, whose weights are [kernel height, kernel width, channels]. `along` is the
    run of elements that are contiguous in the image: the channels, and all columns of the window
    where these are neighbours.
    """
    if program.stages[0].name != STAGE:
        return Declined("it is no convolution with one output channel")
    conv = read_panel_conv(program)
    if conv is None:
        return Declined("what follows the convolution cannot be computed in vectors")
    columns = conv.rows[-1]
    if is_short(columns):
        return Declined("its rows fill no vector")
    if not conv.epilogue.in_vectors(columns.var):
        return Declined("what follows the convolution cannot be computed in vectors of its rows")
    if as_int(stride(conv.origin, columns.var)) is None:
        return Declined("the distance between its windows is not known")
    conv = _merge_runs(conv)
    if require_int(conv.along.extent) < narrowest(unit):
        return Declined("its window has no run of elements that fills a vector")
    return conv


def _merge_runs(conv: PanelConv) -> PanelConv:
    """Merge the columns of the window with the channels where they are contiguous."""
    channels = require_int(conv.along.extent)
    if as_int(conv.steps[-1]) != channels:
        return conv
    run = channels * require_int(conv.window[-1].extent)
    return replace(
        conv,
        window=conv.window[:-1],
        steps=conv.steps[:-1],
        along=Axis(conv.along.var, const(run), reduce=True),
    )
