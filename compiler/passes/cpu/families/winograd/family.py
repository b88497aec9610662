"""3x3 convolutions by Winograd's F(4x4, 3x3)."""

from compiler.passes.cpu.families.family import Declined, Family
from compiler.passes.cpu.families.winograd.emit import (
    Winograd,
    emit_winograd,
    read_winograd,
    tiles_of,
)
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Winograd | Declined:
    found = read_winograd(program)
    return Declined("it is no convolution in Winograd's form") if found is None else found


def _tile(winograd: Winograd, unit: VectorUnit) -> str:
    return f"4x4 results, {tiles_of(unit, winograd.depth, winograd.padded)} tiles a block"


WINOGRAD = Family(
    name="winograd",
    summary="3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3)",
    match=_match,
    tile=_tile,
    emit=emit_winograd,
)
