"""Loops over threads as plain loops, for libraries without threads."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.stmt import ForKind
from tvm_ffi import structural_map

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.programs import map_programs
from compiler.passes.framework.properties import Property
from compiler.tir.loops import PARALLEL_IF, Stmt, replace_loop, with_body


@dataclass(frozen=True)
class SerializeLoops(ModulePass):
    """Makes each loop over threads a serial one."""

    name = "serialize_loops"
    phase = Phase.LOWERED_LOOPS
    ensures = (Property.NO_PARALLEL_LOOPS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program."""
        return map_programs(module, lambda func: with_body(func, _without_threads(func.body)))


def _without_threads(body: Stmt) -> Stmt:
    return structural_map(body, [(tirx.AttrStmt, _without_attribute), (tirx.For, _serial)])


def _without_attribute(stmt: Any) -> Stmt:
    return stmt.body if str(stmt.attr_key) == PARALLEL_IF else stmt


def _serial(loop: Any) -> Stmt:
    return replace_loop(loop, kind=ForKind.SERIAL) if loop.kind == ForKind.PARALLEL else loop
