"""Gives a dim one name in the arguments of programs, too.

Where a match_cast names an extent that has a name, CanonicalizeBindings puts the first name into
the types behind it, and leaves the second one in what calls hand over. A program then gets one dim
by its tensors and by an argument under two names, which FuseTIR cannot tell to be one.

Upstream: no report was found. The pass can go when CanonicalizeBindings visits arguments.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name, substitute


@dataclass(frozen=True)
class RenameArguments(ModulePass):
    """Hands over each dim by the name that was there first."""

    name = "rename_arguments"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites calls of tensor programs in every Relax function."""
        return rewrite_functions(_Rewriter(module)) if _second_names(module) else module


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._first = _second_names(module)

    def rewrite(self, call: Any) -> Any:
        if op_name(call) != "relax.call_tir" or not isinstance(call.args[1], relax.Tuple):
            return call
        fields = [self._renamed(field) for field in call.args[1].fields]
        if all(map(_is_same, fields, call.args[1].fields)):
            return call
        handed = [call.args[0], relax.Tuple(fields), *call.args[2:]]
        return relax.Call(call.op, handed, call.attrs, call.ty_args)

    def _renamed(self, field: Any) -> Any:
        if not isinstance(field.ty, tvm.ir.PrimType):
            return field
        return substitute(field, self._first)


def _is_same(lhs: Any, rhs: Any) -> bool:
    return bool(lhs.same_as(rhs))


def _second_names(module: tvm.IRModule) -> dict[Any, Any]:
    """The extents that match_casts name a second time, by their second names."""
    first: dict[Any, Any] = {}
    for function in module.functions.values():
        if not isinstance(function, relax.Function) or not hasattr(function.body, "blocks"):
            continue
        for binding in (one for block in function.body.blocks for one in block.bindings):
            if isinstance(binding, relax.MatchCast) and isinstance(binding.ty, relax.ShapeType):
                known, named = getattr(binding.value.ty, "values", None), binding.ty.values
                for old, new in zip(known or (), named or (), strict=False):
                    if isinstance(new, tirx.Var) and not new.same_as(old):
                        first.setdefault(new, first.get(old, old))
    return first
