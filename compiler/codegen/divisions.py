"""Takes divisions out of what a loop computes under conditions.

LLVM's loop vectorizer computes a division that stands behind a condition for those lanes alone
that meet it, but takes the address of a masked vector from the first lane. Where the first lane
does not meet the condition, as at the left border of a padded row, that address has no division in
it and the elements come from elsewhere (LLVM 22).
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.tir.building import emit, let_opaque, statements
from compiler.tir.exprs import as_int, const, dtype_of, nodes

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_SIMPLE = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, tvm.tirx.IntImm)


def settled(module: tvm.IRModule) -> tvm.IRModule:
    """The flat module with the divisions that stay the same throughout a loop, but stand behind a
    condition inside it, computed before it.
    """
    functions = {
        gvar: func.with_body(tvm_ffi.structural_map(func.body, [(tirx.For, _loop)]))
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _loop(loop: Any) -> Any:
    """The loop behind the divisions that it needs; loops inside it are done already."""
    with statements() as body:
        # What is a division of quotients that are known now may be steady as well.
        while (division := _steady(loop)) is not None:
            # By way of memory: TVM would put a value back where it is used.
            loop = _replaced(loop, division, let_opaque("quotient", _guarded(division)))
        emit(loop)
    return body.stmt


def _guarded(division: Any) -> Any:
    """The division, by one instead of zero: the condition may be what keeps zero away."""
    below, zero, one = division.b, const(0), const(1)
    return type(division)(division.a, tirx.Select(tirx.EQ(below, zero), one, below))


def _replaced(loop: Any, division: Any, quotient: Any) -> Any:
    def replace(node: Any) -> Any:
        return quotient if tvm_ffi.structural_equal(node, division) else node

    return tvm_ffi.structural_map(loop, [(_DIVISIONS, replace)])


def _steady(loop: Any) -> Any:
    """A division behind a condition, of nothing that the loop defines or reads, with no other
    division in it; None where there is none.
    """
    own = {loop.loop_var}
    found: list[Any] = []

    def define(node: Any) -> None:
        own.add(node.loop_var if isinstance(node, tirx.For) else node.var)

    def gather(node: Any) -> None:
        parts = nodes(node)
        known = all(isinstance(part, (tvm.ir.Var, *_SIMPLE)) for part in parts if part is not node)
        if known and as_int(node.b) is None and dtype_of(node) == "int64":
            found.append(node)

    def enter(node: Any) -> None:
        for branch in _branches(node):
            tvm_ffi.structural_walk(branch, (_DIVISIONS, gather), order="pre")

    tvm_ffi.structural_walk(loop.body, ((tirx.For, tirx.Bind, tirx.Let), define), order="pre")
    tvm_ffi.structural_walk(loop.body, ((tvm.ir.Call, tirx.Select, tirx.IfThenElse), enter))
    for division in found:
        if not any(part in own for part in nodes(division) if isinstance(part, tvm.ir.Var)):
            return division
    return None


def _branches(node: Any) -> list[Any]:
    """What is computed under the node's condition; nothing where it has none."""
    if isinstance(node, tirx.Select):
        return [node.true_value, node.false_value]
    if isinstance(node, tirx.IfThenElse):
        return [node.then_case, *([] if node.else_case is None else [node.else_case])]
    chosen = getattr(node.op, "name", "").endswith(".if_then_else")
    return list(node.args[1:]) if chosen else []
