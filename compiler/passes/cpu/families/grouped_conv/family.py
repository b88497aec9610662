"""Grouped and volumetric convolutions over padded images."""

from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.passes.cpu.families.grouped_conv.emit import emit_direct, read_direct
from compiler.passes.cpu.shared.windowed import PanelSums
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> PanelSums | Declined:
    found = read_direct(program)
    return Declined("it is no convolution over a padded image") if found is None else found


GROUPED_CONV = Family(
    name="grouped_conv",
    summary="grouped and volumetric convolutions over padded images",
    match=_match,
    tile=no_tile,
    emit=emit_direct,
)
