"""softmax(q @ k) @ v with the scores kept in the cache."""

from compiler.passes.cpu.families.attention.emit import emit_attention
from compiler.passes.cpu.families.attention.match import match_attention
from compiler.passes.cpu.families.family import Family, no_tile

ATTENTION = Family(
    name="attention",
    summary="softmax(q @ k) @ v with the scores kept in the cache",
    match=match_attention,
    tile=no_tile,
    emit=emit_attention,
)
