"""Merges a loop that stands in a kernel twice, over threads and serially.

Until kernels are lowered the two are separate loops, so that whoever leaves out one of them, as
DecideBranches does, has nothing to undo. LLVM takes as long for each.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import ForKind

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.programs import map_programs
from compiler.tir.exprs import const
from compiler.tir.loops import TAKE_CODE, Stmt, with_body

PARALLEL_IF = "relaxd_parallel_if"
"""The attribute of a serial loop that runs over the threads where its value holds."""

_IMPORT = "pragma_import_llvm"


@dataclass(frozen=True)
class MergeTwinLoops(ModulePass):
    """Replaces each choice between a loop over threads and a serial one of the same body by the
    serial one, with the condition as an attribute.
    """

    name = "merge_twin_loops"
    phase = Phase.LOWERED_LOOPS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program."""
        steps = ((tirx.IfThenElse, _merge),)
        return map_programs(
            module, lambda func: with_body(func, tvm_ffi.structural_map(func.body, steps))
        )


def _merge(branch: Any) -> Stmt:
    serial = branch.else_case
    if not isinstance(serial, tirx.For) or serial.kind != ForKind.SERIAL:
        return branch
    shared = _of_share(branch.then_case)
    if shared is None or not _same(shared, serial):
        return branch
    return tirx.AttrStmt(const(0), PARALLEL_IF, branch.condition, serial)


def _of_share(parallel: Stmt) -> tuple[Any, Any] | None:
    """The binding of a share's first task and the loop over its tasks, in statements that
    `building.parallel` emits; None of others.
    """
    last = list(parallel.seq)[-1] if isinstance(parallel, tirx.SeqStmt) else parallel
    if not isinstance(last, tirx.AttrStmt) or str(last.attr_key) != _IMPORT:
        return None
    if str(last.value.value) != TAKE_CODE:
        return None
    *_, taking = last.body.body.seq
    start, loop, *_ = taking.body.seq
    return start, loop


def _same(shared: tuple[Any, Any], serial: Any) -> bool:
    """Checks that the loop over a share does for each task what the serial loop does."""
    start, loop = shared
    task = start.var + loop.loop_var

    def renamed(node: Any, mutator: Any) -> Any:
        if not node.same_as(serial):
            return mutator.default_mutate(node)
        mutator.var_remap_set(serial.loop_var, task)
        return mutator.mutate(serial.body)

    body = tvm_ffi.structural_mutate(serial, [(tirx.For, renamed)])
    return bool(tvm_ffi.structural_equal(loop.body, body))
