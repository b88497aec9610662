"""Loops over threads as plain loops, for libraries without threads."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.stmt import ForKind
from tvm_ffi import structural_map, structural_mutate, structural_walk

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.programs import map_programs
from compiler.passes.framework.properties import Property
from compiler.passes.lower.loops.twin_loops import is_serial_twin, loop_as, takes_shares
from compiler.tir.exprs import const, op_name
from compiler.tir.loops import TAKE, Stmt, with_body


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
    chosen = structural_map(body, [(tirx.IfThenElse, _serial_twin)])
    return structural_map(chosen, [(tirx.AttrStmt, _serial), (tirx.For, _plain)])


def _serial_twin(choice: Any) -> Stmt:
    chosen = is_serial_twin(choice.then_case, choice.else_case)
    return choice.else_case if chosen else choice


def _plain(loop: Any) -> Stmt:
    return loop_as(loop, ForKind.SERIAL, loop.body) if loop.kind == ForKind.PARALLEL else loop


def _serial(stmt: Any) -> Stmt:
    if not takes_shares(stmt):
        return stmt
    extents: list[Any] = []

    def take(node: Any) -> None:
        if op_name(node) == "tirx.call_extern" and str(node.args[0].value) == TAKE:
            extents.append(node.args[2])

    structural_walk(stmt, (tvm.ir.Call, take), order="pre")
    # As `building.shares` emits them: what a worker does with a share stands in its last statement.
    *_, taking = stmt.body.body.seq
    start, loop, *_ = taking.body.seq

    def renamed(inner: Any, mutator: Any) -> Any:
        mutator.var_remap_set(start.var, const(0))
        return mutator.default_mutate(inner)

    body = structural_mutate(loop.body, [(type(loop.body), renamed)])
    return tirx.For(loop.loop_var, const(0), extents[0], ForKind.SERIAL, body)
