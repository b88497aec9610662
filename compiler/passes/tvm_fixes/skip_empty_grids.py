"""Skips the launch of kernels whose grid has no block.

TVM's runtime launches one block where an extent of the grid is 0 at run time. A kernel that relies
on its extents, such as softmax, then reads and writes past the ends of empty tensors.

Upstream: apache/tvm#20278, open, of CUDA. The pass can go when a launch with an extent of 0 does
nothing.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.gpu.bound import is_kernel


@dataclass(frozen=True)
class SkipEmptyGrids(ModulePass):
    """Puts each grid of symbolic extents under a branch on the host that is taken where no extent
    is 0.
    """

    name = "skip_empty_grids"
    phase = Phase.LOOPS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Kernels whose extents are all constant stay the same objects."""
        functions = {
            gvar: _guarded(func) if is_kernel(func) else func
            for gvar, func in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _guarded(func: tirx.PrimFunc) -> tirx.PrimFunc:
    body = _statement(func.body)
    return func if body.same_as(func.body) else func.with_body(body)


def _statement(stmt: Any) -> Any:
    """The part of a kernel that the host runs, down to the loops that are bound to blocks."""
    match stmt:
        case tirx.For() if stmt.thread_binding is not None:
            return _unless_empty(stmt)
        case tirx.SeqStmt():
            parts = [_statement(part) for part in stmt.seq]
            if all(new.same_as(old) for new, old in zip(parts, stmt.seq, strict=True)):
                return stmt
            return tirx.SeqStmt(parts)
        case tirx.IfThenElse():
            then, other = _statement(stmt.then_case), _statement(stmt.else_case)
            if then.same_as(stmt.then_case) and (other is None or other.same_as(stmt.else_case)):
                return stmt
            return tirx.IfThenElse(stmt.condition, then, other)
        case tirx.For():
            return _with_body(stmt, _statement(stmt.body))
        case s_tir.SBlockRealize() if not stmt.block.iter_vars and stmt.block.init is None:
            block = _with_body(stmt.block, _statement(stmt.block.body))
            if block.same_as(stmt.block):
                return stmt
            return s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, block)
        case _:
            return stmt


def _unless_empty(grid: tirx.For) -> Any:
    """The grid under the condition that none of its symbolic extents is 0."""
    condition, loop, analyzer = None, grid, tvm.sym.Analyzer()
    while isinstance(loop, tirx.For) and loop.thread_binding is not None:
        positive = loop.extent > 0
        if not analyzer.can_prove(positive):
            condition = positive if condition is None else tirx.And(condition, positive)
        loop = loop.body
    if condition is None:
        return grid
    return tirx.IfThenElse(tirx.op.tvm_thread_invariant(condition), grid, None)


def _with_body(stmt: Any, body: Any) -> Any:
    """A loop or block with another body, itself where that is the same."""
    if body.same_as(stmt.body):
        return stmt
    if isinstance(stmt, tirx.For):
        return tirx.For(
            stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, None, stmt.annotations
        )
    return s_tir.SBlock(
        stmt.iter_vars,
        stmt.reads,
        stmt.writes,
        stmt.name_hint,
        body,
        stmt.init,
        stmt.alloc_buffers,
        stmt.match_buffers,
        stmt.annotations,
    )
