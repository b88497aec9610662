"""softmax(q @ k) @ v with the scores kept in the cache."""

from compiler.passes.cpu.families.attention.emit import Attention, emit_attention, read_attention
from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Attention | Declined:
    found = read_attention(program)
    return Declined("it is no fused attention") if found is None else found


ATTENTION = Family(
    name="attention",
    summary="softmax(q @ k) @ v with the scores kept in the cache",
    match=_match,
    tile=no_tile,
    emit=emit_attention,
)
