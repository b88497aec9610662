"""Convolutions with one output channel over padded images."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.single_conv.emit import emit_single_conv
from compiler.passes.cpu.families.single_conv.match import match_single_conv
from compiler.passes.cpu.families.single_conv.plan import describe_tile

SINGLE_CONV = Family(
    name="single_conv",
    summary="convolutions with one output channel over padded images",
    match=match_single_conv,
    tile=describe_tile,
    emit=emit_single_conv,
)
