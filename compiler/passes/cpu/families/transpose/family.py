"""Programs that write along one axis and read along another."""

from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.passes.cpu.families.transpose.emit import Permute, emit_permute, read_permute
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Permute | Declined:
    found = read_permute(program)
    return Declined("it reads along the axis that it writes along") if found is None else found


TRANSPOSE = Family(
    name="transpose",
    summary="elementwise programs that write along one axis and read along another",
    match=_match,
    tile=no_tile,
    emit=emit_permute,
)
