"""Any program of stages that no other family matches."""

from compiler.passes.cpu.families.family import Family, no_tile
from compiler.passes.cpu.families.generic.emit import emit_program
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Program:
    return program


GENERIC = Family(
    name="generic",
    summary="any other program: rows over the threads, axes in vectors",
    match=_match,
    tile=no_tile,
    emit=emit_program,
)
