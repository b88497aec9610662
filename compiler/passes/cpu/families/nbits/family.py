"""Matmuls by constant matrices of 4- and 8-bit numbers with a scale for each block."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.nbits.emit import describe_tile, emit_nbits
from compiler.passes.cpu.families.nbits.match import match_nbits

NBITS = Family(
    name="nbits",
    summary="matmuls by matrices of 4- and 8-bit numbers with a scale for each block",
    match=match_nbits,
    tile=describe_tile,
    emit=emit_nbits,
)
