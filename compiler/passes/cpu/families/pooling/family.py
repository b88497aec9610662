"""Sliding windows over images: pooling and depthwise convolution."""

from compiler.passes.cpu.families.family import Family, no_tile
from compiler.passes.cpu.families.pooling.emit import emit_window
from compiler.passes.cpu.families.pooling.match import match_window

POOLING = Family(
    name="pooling",
    summary="sliding windows over images: pooling and depthwise convolutions",
    match=match_window,
    tile=no_tile,
    emit=emit_window,
)
