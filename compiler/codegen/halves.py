"""Compiles the body of a loop that stands in a kernel twice, over threads and serially, once.

Until kernels are lowered the two are separate loops, so that whoever leaves out one of them, as
DecideBranches does, has nothing to undo. LLVM takes as long for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import ForKind

from compiler.codegen.plain_functions import plain_function, unpacked
from compiler.tir.building import emit, otherwise, shares, statements, when
from compiler.tir.exprs import Expr, const, dtype_of
from compiler.tir.loops import TAKE_CODE, Stmt, seq, with_body

_WORTH = "relaxd_worth"
"""The attribute of a serial loop that runs over the threads where its value holds."""

_IMPORT = "pragma_import_llvm"
_STATUS = tvm.ir.PrimType("int32")
_KEPT = ("target", "tirx.noalias")
"""Attributes of a kernel that hold for its parts."""


def joined(module: tvm.IRModule) -> tvm.IRModule:
    """The module, in which each choice between a loop over threads and a serial one of the same
    body is the serial one with the condition as an attribute.
    """
    functions = {
        gvar: with_body(func, tvm_ffi.structural_map(func.body, ((tirx.IfThenElse, _joined),)))
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _joined(branch: Any) -> Stmt:
    other = branch.else_case
    if not isinstance(other, tirx.For) or other.kind != ForKind.SERIAL:
        return branch
    shared = _of_share(branch.then_case)
    if shared is None or not _same(shared, other):
        return branch
    return tirx.AttrStmt(const(0), _WORTH, branch.condition, other)


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
    """Whether the loop over a share does for each task what the serial loop does."""
    start, loop = shared
    task = start.var + loop.loop_var

    def renamed(found: Any, mutator: Any) -> Any:
        if not found.same_as(serial):
            return mutator.default_mutate(found)
        mutator.var_remap_set(serial.loop_var, task)
        return mutator.mutate(serial.body)

    body = tvm_ffi.structural_mutate(serial, [(tirx.For, renamed)])
    return bool(tvm_ffi.structural_equal(loop.body, body))


def divided(module: tvm.IRModule) -> tvm.IRModule:
    """The lowered module, in which the body of each loop with the attribute is a function of its
    own: a thread calls it for each of its shares, and a serial loop is one call.
    """
    functions: dict[Any, Any] = {}
    for gvar, func in module.functions.items():
        parts = _Parts(gvar.name_hint, func.attrs)
        steps = ((tirx.AttrStmt, parts.of),)
        functions[gvar] = with_body(func, tvm_ffi.structural_map(func.body, steps))
        functions |= parts.made
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


@dataclass
class _Parts:
    """The functions that a kernel's loops become."""

    kernel: str
    attrs: Any
    made: dict[Any, Any] = field(default_factory=dict)

    def of(self, stmt: Any) -> Stmt:
        """The two halves in place of a loop with the attribute."""
        if str(stmt.attr_key) != _WORTH:
            return stmt
        # What other steps moved out of the loop stands before it.
        *before, loop = list(stmt.body.seq) if isinstance(stmt.body, tirx.SeqStmt) else [stmt.body]
        part, given = self._part(loop)
        with statements() as halves:
            with when(stmt.value), shares(loop.extent.astype("int64")) as (start, end):
                _call(part, [start, end], given)
            with otherwise():
                _call(part, [const(0), loop.extent.astype("int64")], given)
        return seq(*before, halves.stmt)

    def _part(self, loop: Any) -> tuple[Any, list[Expr]]:
        """A function of the iterations from one up to another, and what else it takes."""
        first, end = tirx.Var("first", "int64"), tirx.Var("end", "int64")
        dtype = dtype_of(loop.loop_var)
        count = (end - first).astype(dtype)
        share = tirx.For(
            loop.loop_var,
            first.astype(dtype),
            count,
            ForKind.SERIAL,
            loop.body,
            None,
            loop.annotations,
        )
        free = list(tirx.analysis.undefined_vars(share, [first, end]))
        pointers, declared, _ = unpacked(free)
        attrs = {name: self.attrs[name] for name in _KEPT if name in self.attrs}
        part = plain_function([first, end, *pointers], seq(*declared, share), None)
        gvar = tvm.ir.GlobalVar(f"{self.kernel}.part{len(self.made)}")
        self.made[gvar] = part.with_attrs(attrs)
        return gvar, [var.data if hasattr(var.ty, "shape") else var for var in free]


def _call(part: Any, span: Sequence[Expr], given: Sequence[Expr]) -> None:
    """Emit a call, behind which an error ends the function."""
    status = tvm.ir.Call(part, [*span, *given], ret_ty=_STATUS)
    with when(tirx.NE(status, tirx.const(0, "int32"))):
        emit(tirx.Evaluate(tirx.tvm_throw_last_error()))
