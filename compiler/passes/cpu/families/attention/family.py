"""softmax(q @ k) @ v with scores that stay in the cache."""

from compiler.passes.cpu.families.attention import plan
from compiler.passes.cpu.families.attention.bfloat16_emit import emit_bfloat16
from compiler.passes.cpu.families.attention.emit import emit_attention, sizes_of
from compiler.passes.cpu.families.attention.match import Attention, match_attention
from compiler.passes.cpu.families.attention.panels import panel_of
from compiler.passes.cpu.families.family import Family
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import Stmt


def _emit(attention: Attention, unit: VectorUnit) -> Stmt:
    return (
        emit_bfloat16(attention, unit) if attention.is_bfloat16 else emit_attention(attention, unit)
    )


def _tile(attention: Attention, unit: VectorUnit) -> str:
    rows = plan.ROWS if attention.is_bfloat16 else sizes_of(unit)[-1]
    tile = f"{rows} queries x {panel_of(unit)} keys"
    return f"{tile}, bfloat16 dot product" if attention.is_bfloat16 else tile


ATTENTION = Family(
    name="attention",
    summary="softmax(q @ k) @ v with the scores kept in the cache",
    match=match_attention,
    tile=_tile,
    emit=_emit,
)
