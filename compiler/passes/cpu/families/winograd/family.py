"""3x3 convolutions by Winograd's F(4x4, 3x3)."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.winograd.emit import describe_tile, emit_winograd
from compiler.passes.cpu.families.winograd.match import match_winograd

WINOGRAD = Family(
    name="winograd",
    summary="3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3)",
    match=match_winograd,
    tile=describe_tile,
    emit=emit_winograd,
)
