"""Exact matmuls and convolutions of small integers."""

from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.passes.cpu.families.int8.emit import emit_integers, read_integers
from compiler.passes.cpu.shared.windowed import PanelSums
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> PanelSums | Declined:
    found = read_integers(program)
    return Declined("its weights are not packed integers") if found is None else found


INT8 = Family(
    name="int8",
    summary="matmuls and convolutions of 8-bit integers, accumulated exactly in 32 bits",
    match=_match,
    tile=no_tile,
    emit=emit_integers,
)
