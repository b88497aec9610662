"""Marks every tensor program as one whose buffers do not overlap."""

from dataclasses import dataclass

from tvm import tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass


@dataclass(frozen=True)
class MarkNoAlias(ProgramPass):
    """Marks tensor programs `tirx.noalias`: Relax gives none one buffer twice as output and input.

    TVM's LLVM back end goes by the last function alone, which is often a shape function of its own
    that lacks the mark.
    """

    name = "mark_no_alias"
    phase = Phase.LOWERED_LOOPS

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Marks a program."""
        return func.with_attr("tirx.noalias", True)
