"""Orders the statements of the functions that compute extents at run time, and keeps one of equal
functions.

VMShapeLower writes a statement for each extent, in the order of addresses, which differs from
process to process, and shares a function only where the orders happen to be equal: equal requests
would get libraries of different bytes.

Upstream: no report was found. The pass can go when VMShapeLower writes extents in the order of
their slots.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

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
        slots = sorted(
            (gvar for gvar, func in functions.items() if _is_host(func)),
            key=lambda gvar: (len(gvar.name_hint), gvar.name_hint),
        )
        if (renamed := _merge(slots, functions)) is not None:
            functions = {gvar: _call(func, renamed) for gvar, func in functions.items()}
            merged = {renamed[gvar]: functions.pop(gvar) for gvar in reversed(slots)}
            functions |= merged
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _is_host(func: tvm.ir.BaseFunc) -> bool:
    return isinstance(func, tirx.PrimFunc) and "tirx.is_host_func" in (func.attrs or {})


def _merge(slots: list[Any], functions: dict[Any, Any]) -> dict[Any, Any] | None:
    """The name that each function gets, equal ones the same; None where no two are equal. Names
    are given out in their order, so that none of them tells how many functions there were.
    """
    groups: list[list[Any]] = []
    for gvar in slots:
        for group in groups:
            if tvm_ffi.structural_equal(functions[group[0]], functions[gvar]):
                group.append(gvar)
                break
        else:
            groups.append([gvar])
    if len(groups) == len(slots):
        return None
    return {gvar: name for name, group in zip(slots, groups, strict=False) for gvar in group}


def _call(func: tvm.ir.BaseFunc, renamed: dict[Any, Any]) -> tvm.ir.BaseFunc:
    return _Renamer(renamed).visit_expr(func) if isinstance(func, relax.Function) else func


@relax.expr_functor.mutator
class _Renamer(relax.PyExprMutator):  # type: ignore[misc]
    """Calls functions by their new names."""

    def __init__(self, renamed: dict[Any, Any]) -> None:
        super().__init__()
        self._renamed = renamed

    def visit_global_var_(self, op: Any) -> Any:
        """The function's new name."""
        return self._renamed.get(op, op)


def _sorted(func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
    if not _is_host(func):
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
