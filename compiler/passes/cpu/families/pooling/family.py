"""Sliding windows over images: pooling and depthwise convolution."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.pooling.emit import describe_tile, emit_window
from compiler.passes.cpu.families.pooling.match import match_window

POOLING = Family(
    name="pooling",
    summary="sliding windows over images: pooling and depthwise convolutions",
    match=match_window,
    tile=describe_tile,
    emit=emit_window,
)
