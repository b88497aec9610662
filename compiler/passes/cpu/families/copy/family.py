"""Reshapes that need a copy of their input."""

from compiler.passes.cpu.families.copy.emit import emit_copy
from compiler.passes.cpu.families.copy.match import match_copy
from compiler.passes.cpu.families.family import Family, no_tile
from compiler.tir.stages import Program

COPY: Family[Program] = Family(
    name="copy",
    summary="a reshape whose result is a copy of its input, element by element",
    match=match_copy,
    tile=no_tile,
    emit=emit_copy,
)
