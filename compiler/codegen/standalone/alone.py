"""Loops over threads as plain loops, for libraries without threads."""

from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.stmt import ForKind
from tvm_ffi import structural_map, structural_mutate, structural_walk

from compiler.codegen.standalone.plain import is_serial_half, loop_as, takes_shares
from compiler.tir.exprs import const, op_name
from compiler.tir.loops import TAKE, Stmt, with_body


def alone(module: tvm.IRModule) -> tvm.IRModule:
    """The scheduled module in which each loop over threads is serial."""
    functions = {
        gvar: with_body(func, _without_threads(func.body))
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _without_threads(body: Stmt) -> Stmt:
    halves = structural_map(body, [(tirx.IfThenElse, _serial_half)])
    return structural_map(halves, [(tirx.AttrStmt, _serial), (tirx.For, _plain)])


def _serial_half(choice: Any) -> Stmt:
    chosen = is_serial_half(choice.then_case, choice.else_case)
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

    def renamed(found: Any, mutator: Any) -> Any:
        mutator.var_remap_set(start.var, const(0))
        return mutator.default_mutate(found)

    body = structural_mutate(loop.body, [(type(loop.body), renamed)])
    return tirx.For(loop.loop_var, const(0), extents[0], ForKind.SERIAL, body)
