"""softmax(q @ k) @ v with the scores kept in the cache."""

from compiler.passes.cpu.families.attention.emit import ROWS, emit_attention, panel_of
from compiler.passes.cpu.families.attention.match import match_attention
from compiler.passes.cpu.families.family import Family

ATTENTION = Family(
    name="attention",
    summary="softmax(q @ k) @ v with the scores kept in the cache",
    match=match_attention,
    tile=lambda match, unit: f"{ROWS} queries x {panel_of(unit)} keys",
    emit=emit_attention,
)
