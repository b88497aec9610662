"""Matmuls and convolutions by constant weights laid out in panels."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.matmul.emit import emit_matmul
from compiler.passes.cpu.families.matmul.match import describe_tile, match_matmul

MATMUL = Family(
    name="matmul",
    summary="matmuls and convolutions by constant weights packed in panels",
    match=match_matmul,
    tile=describe_tile,
    emit=emit_matmul,
)
