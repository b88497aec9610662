"""Matmuls of two tensors that are both computed at run time."""

from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.passes.cpu.families.matmul.match import read_contraction
from compiler.passes.cpu.families.matmul_dynamic.emit import emit_blocked
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import Stmt
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Stmt | Declined:
    """The emitted loops: today the emitter is what declines."""
    contraction = read_contraction(program)
    if contraction is None:
        return Declined("it is no sum of products of float32")
    loops = emit_blocked(contraction, unit)
    return Declined("it has no columns without gaps, or no rows") if loops is None else loops


MATMUL_DYNAMIC: Family[Stmt] = Family(
    name="matmul_dynamic",
    summary="matmuls whose two sides are both computed at run time",
    match=_match,
    tile=no_tile,
    emit=lambda loops, unit: loops,
)
