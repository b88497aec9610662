"""Programs that write along one axis and read along another."""

from compiler.passes.cpu.families.family import Family, no_tile
from compiler.passes.cpu.families.transpose.emit import emit_permute
from compiler.passes.cpu.families.transpose.match import match_permute

TRANSPOSE = Family(
    name="transpose",
    summary="elementwise programs that write along one axis and read along another",
    match=match_permute,
    tile=no_tile,
    emit=emit_permute,
)
