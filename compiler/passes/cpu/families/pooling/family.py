"""Sliding windows over images: pooling and depthwise convolution."""

from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.passes.cpu.families.pooling.emit import Window, emit_window, read_window
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Window | Declined:
    found = read_window(program)
    return Declined("it is no window that slides over an image") if found is None else found


POOLING = Family(
    name="pooling",
    summary="sliding windows over images: pooling and depthwise convolutions",
    match=_match,
    tile=no_tile,
    emit=emit_window,
)
