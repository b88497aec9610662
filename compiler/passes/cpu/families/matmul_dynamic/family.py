"""Matmuls of two tensors that are both computed at run time."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.matmul_dynamic.emit import describe_tile, emit_matmul_dynamic
from compiler.passes.cpu.families.matmul_dynamic.match import match_matmul_dynamic

MATMUL_DYNAMIC = Family(
    name="matmul_dynamic",
    summary="matmuls whose two sides are both computed at run time",
    match=match_matmul_dynamic,
    tile=describe_tile,
    emit=emit_matmul_dynamic,
)
