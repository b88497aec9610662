"""Orders the statements of the functions that compute extents at run time.

VMShapeLower writes a statement for each extent, in the order of addresses, which differs from
process to process: equal requests would get libraries of different bytes.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.tir.exprs import as_int, loads
from compiler.tir.loops import seq


@dataclass(frozen=True)
class OrderSlots(ModulePass):
    """Sorts statements that each compute one slot of the shape heap, and read none of the slots
    that the others compute.
    """

    name = "order_slots"
    phase = Phase.VIRTUAL_MACHINE

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites host functions; others are loops, whose statements have to stay in order."""
        functions = {gvar: _sorted(func) for gvar, func in module.functions.items()}
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _sorted(func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
    if not isinstance(func, tirx.PrimFunc) or "tirx.is_host_func" not in (func.attrs or {}):
        return func
    stmts = list(func.body.seq) if isinstance(func.body, tirx.SeqStmt) else []
    if not stmts or not all(isinstance(stmt, tirx.BufferStore) for stmt in stmts):
        return func
    by_slot = {slot: stmt for stmt in stmts if (slot := _slot(stmt)) is not None}
    read = {_slot(load) for stmt in stmts for load in loads(stmt.value)}
    if len(by_slot) < len(stmts) or read & {None, *by_slot}:
        return func
    return func.with_body(seq(*(by_slot[slot] for slot in sorted(by_slot))))


def _slot(access: Any) -> int | None:
    return as_int(access.indices[0]) if len(access.indices) == 1 else None
