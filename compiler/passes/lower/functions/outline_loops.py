"""Compiles the body of a loop that runs over threads or serially as a function of its own, once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.passes.lower.functions.plain_functions import plain_function, unpack
from compiler.tir.building import emit, otherwise, shares, statements, when
from compiler.tir.exprs import Expr, const
from compiler.tir.loops import PARALLEL_IF, Stmt, over_range, parallel_loop, seq, with_body

_STATUS = tvm.ir.PrimType("int32")
_RETAINED = ("target", "tirx.noalias")
"""Attributes of a kernel that hold for its parts."""


@dataclass(frozen=True)
class OutlineLoops(ModulePass):
    """Makes the body of each loop with the attribute PARALLEL_IF a function: a thread calls it for
    each of its shares, and a serial loop is one call.

    with_symbols: these functions have symbols, derived from the kernel's. TVM's names of private
    ones begin with `.L`, which the linkers of Windows do not find.
    """

    with_symbols: bool = False
    name = "outline_loops"
    phase = Phase.FUNCTIONS
    requires = (Property.PACKED_FUNCTIONS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every function, and adds those of the loops."""
        functions: dict[Any, Any] = {}
        for gvar, func in module.functions.items():
            parts = _Parts(gvar.name_hint, func.attrs, self.with_symbols)
            steps = ((tirx.AttrStmt, parts.of),)
            functions[gvar] = with_body(func, tvm_ffi.structural_map(func.body, steps))
            functions |= parts.functions
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


@dataclass
class _Parts:
    """The functions that a kernel's loops become."""

    kernel: str
    attrs: Any
    with_symbols: bool
    functions: dict[Any, Any] = field(default_factory=dict)

    def of(self, stmt: Any) -> Stmt:
        """A choice of calls in place of a loop with the attribute."""
        if str(stmt.attr_key) != PARALLEL_IF:
            return stmt
        tasks = parallel_loop(stmt)
        if tasks is None:
            return stmt.body
        before, loop = tasks
        part, arguments = self._part(loop)
        with statements() as calls:
            with when(stmt.value), shares(loop.extent.astype("int64")) as (start, end):
                _call(part, [start, end], arguments)
            with otherwise():
                _call(part, [const(0), loop.extent.astype("int64")], arguments)
        return seq(*before, calls.stmt)

    def _part(self, loop: Any) -> tuple[Any, list[Expr]]:
        """A function of the iterations from one up to another, and what else it takes."""
        first, end = tirx.Var("first", "int64"), tirx.Var("end", "int64")
        share = over_range(loop, first, end)
        free = list(tirx.analysis.undefined_vars(share, [first, end]))
        pointers, declared, _ = unpack(free)
        attrs = {name: self.attrs[name] for name in _RETAINED if name in self.attrs}
        if self.with_symbols:
            attrs["global_symbol"] = f"{self.attrs['global_symbol']}_part{len(self.functions)}"
        part = plain_function([first, end, *pointers], seq(*declared, share), None)
        gvar = tvm.ir.GlobalVar(f"{self.kernel}.part{len(self.functions)}")
        self.functions[gvar] = part.with_attrs(attrs)
        return gvar, [var.data if hasattr(var.ty, "shape") else var for var in free]


def _call(part: Any, span: Sequence[Expr], arguments: Sequence[Expr]) -> None:
    """Emit a call, behind which an error ends the function."""
    status = tvm.ir.Call(part, [*span, *arguments], ret_ty=_STATUS)
    with when(tirx.NE(status, tirx.const(0, "int32"))):
        emit(tirx.Evaluate(tirx.tvm_throw_last_error()))
