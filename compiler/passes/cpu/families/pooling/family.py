"""Sliding windows over images: pooling and depthwise convolution."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.pooling.emit import columns_together, emit_window
from compiler.passes.cpu.families.pooling.match import match_window

POOLING = Family(
    name="pooling",
    summary="sliding windows over images: pooling and depthwise convolutions",
    match=match_window,
    tile=lambda window, unit: f"{columns_together(window, unit)} columns by one vector",
    emit=emit_window,
)
