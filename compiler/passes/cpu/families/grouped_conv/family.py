"""Grouped and volumetric convolutions over padded images."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.grouped_conv.emit import emit_grouped_conv
from compiler.passes.cpu.families.grouped_conv.match import match_grouped_conv
from compiler.passes.cpu.families.grouped_conv.plan import describe_tile

GROUPED_CONV = Family(
    name="grouped_conv",
    summary="grouped and volumetric convolutions over padded images",
    match=match_grouped_conv,
    tile=describe_tile,
    emit=emit_grouped_conv,
)
