"""Recognition of the convolution in Winograd's form that `program` writes, with its epilogue."""

from dataclasses import dataclass, replace
from typing import Any

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.families.winograd.program import STAGES
from compiler.passes.cpu.shared.loop_nest import combine_of
from compiler.passes.cpu.shared.reduction import AnchoredProgram, read_anchored
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, is_choice, loads, nodes, require_int
from compiler.tir.flat import analyzer_for
from compiler.tir.stages import Program, Stage


@dataclass(frozen=True)
class Winograd:
    """A convolution in Winograd's form.

    source: the stage that transforms the input; inside, value: over its axes, the condition that a
    position of the input is not padding, and the input there. weights: flat, [36, panels, depth,
    width]; anchored: the results, and the epilogue that turns them into the outputs.
    """

    source: Stage
    inside: Expr
    value: Expr
    weights: Any
    depth: int
    columns: int
    width: int
    anchored: AnchoredProgram

    @property
    def padded(self) -> int:
        """The number of columns, rounded up to whole panels."""
        return -(-self.columns // self.width) * self.width


def match_winograd(program: Program, unit: VectorUnit) -> Winograd | Declined:
    """Read the program as a convolution in Winograd's form."""
    if [stage.name for stage in program.stages[: len(STAGES)]] != list(STAGES):
        return Declined("it is no convolution in Winograd's form")
    source, summed = program.stages[:2]
    input_sum, matmul_sum = combine_of(source), combine_of(summed)
    if input_sum is None or matmul_sum is None:
        return Declined("its transforms are no sums")
    # The output transform is the reduction that the epilogue follows.
    anchored = read_anchored(replace(program, stages=program.stages[2:]))
    if anchored is None:
        return Declined("its epilogue is not elementwise")
    if not anchored.epilogue.in_vectors(anchored.anchor.spatial[-1].var):
        return Declined("its epilogue cannot be computed in vectors of channels")
    # The program reads the input through a choice between it and zero, the padding.
    choice = next(node for node in nodes(input_sum.term) if is_choice(node))
    factors = [read.source for read in loads(matmul_sum.term)]
    weights = next(factor for factor in factors if not factor.same_as(source.buffer))
    _points, _panels, depth, width = map(require_int, weights.shape)
    return Winograd(
        source=source,
        inside=choice.args[0],
        value=anchored.flat.value(choice.args[1], analyzer_for(source.axes)),
        weights=anchored.flat.views[weights],
        depth=depth,
        columns=require_int(summed.spatial[-1].extent),
        width=width,
        anchored=anchored,
    )
