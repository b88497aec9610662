"""Loops over threads as plain loops, for libraries without threads."""

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.stmt import ForKind
from tvm_ffi import structural_map

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.loops import PARALLEL_IF, Stmt, replace_loop, with_body


@dataclass(frozen=True)
class SerializeLoops(ProgramPass):
    """Makes each loop over threads a serial one."""

    name = "serialize_loops"
    phase = Phase.LOWERED_LOOPS
    ensures = (Property.NO_PARALLEL_LOOPS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites the loops of a program."""
        steps = [(tirx.AttrStmt, _without_attribute), (tirx.For, _serial)]
        return with_body(func, structural_map(func.body, steps))


def _without_attribute(stmt: Any) -> Stmt:
    return stmt.body if str(stmt.attr_key) == PARALLEL_IF else stmt


def _serial(loop: Any) -> Stmt:
    return replace_loop(loop, kind=ForKind.SERIAL) if loop.kind == ForKind.PARALLEL else loop
