"""Reshapes that need a copy of their input."""

from compiler.passes.cpu.families.copy.emit import IN_ORDER, emit_copy
from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Program | Declined:
    if not program.attrs or IN_ORDER not in program.attrs:
        return Declined("it is not a reshape alone")
    return program


COPY: Family[Program] = Family(
    name="copy",
    summary="a reshape whose result is a copy of its input, element by element",
    match=_match,
    tile=no_tile,
    emit=emit_copy,
)
