"""Marks every tensor program as one whose buffers do not overlap."""

from dataclasses import dataclass

import tvm

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.programs import map_programs


@dataclass(frozen=True)
class MarkNoAlias(ModulePass):
    """Marks tensor programs `tirx.noalias`: Relax gives none one buffer twice as output and input.

    TVM's LLVM back end goes by the last function alone, which is often a shape function of its own
    that lacks the mark.
    """

    name = "mark_no_alias"
    phase = Phase.LOWERED_LOOPS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program."""
        return map_programs(module, lambda func: func.with_attr("tirx.noalias", True))
