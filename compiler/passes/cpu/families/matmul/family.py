"""Matmuls and convolutions by constant weights laid out in panels."""

from compiler.passes.cpu.families.family import Declined, Family, no_tile
from compiler.passes.cpu.families.matmul.emit import emit_contraction
from compiler.passes.cpu.families.matmul.match import read_contraction
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import Stmt
from compiler.tir.stages import Program


def _match(program: Program, unit: VectorUnit) -> Stmt | Declined:
    """The emitted loops: today the emitter is what declines."""
    contraction = read_contraction(program)
    if contraction is None:
        return Declined("it is no sum of products of float32")
    loops = emit_contraction(contraction, unit)
    return (
        Declined("its weights are not packed in panels for this target") if loops is None else loops
    )


MATMUL: Family[Stmt] = Family(
    name="matmul",
    summary="matmuls and convolutions by constant weights packed in panels",
    match=_match,
    tile=no_tile,
    emit=lambda loops, unit: loops,
)
