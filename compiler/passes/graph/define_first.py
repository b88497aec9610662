"""Bindings in an order that defines every dim before it is used: fusion sorts by tensors alone, and
breaks that.
"""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax


def define_first(module: tvm.IRModule) -> tvm.IRModule:
    """The module with the bindings of its dataflow blocks moved back as far as their tensors and
    dims need.
    """
    functions = {
        gvar: _function(func) if isinstance(func, relax.Function) else func
        for gvar, func in module.functions.items()
    }
    if all(func.same_as(module[gvar]) for gvar, func in functions.items()):
        return module
    return relax.transform.Normalize()(
        tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    )


def _function(func: relax.Function) -> relax.Function:
    if not isinstance(func.body, relax.SeqExpr):
        return func
    known = {
        dim for param in func.params for dim in relax.analysis.definable_tir_vars_in_type(param.ty)
    }
    blocks, moved = [], False
    for block in func.body.blocks:
        bindings = list(block.bindings)
        if isinstance(block, relax.DataflowBlock):
            ordered = _ordered(bindings, known)
            moved = moved or any(
                one is not other for one, other in zip(bindings, ordered, strict=True)
            )
            block, bindings = relax.DataflowBlock(ordered), ordered
        known |= {dim for binding in bindings for dim in _defined(binding)}
        blocks.append(block)
    if not moved:
        return func
    return relax.Function(
        func.params, relax.SeqExpr(blocks, func.body.body), func.ret_ty, func.is_pure, func.attrs
    )


def _ordered(bindings: Sequence[Any], known: set[Any]) -> list[Any]:
    """As they come, but each after those that it needs; what needs itself stays where it is, for
    the gate to find.
    """
    own = (
        {binding.var for binding in bindings}
        | {dim for binding in bindings for dim in _defined(binding)}
    ) - known
    waiting = [(binding, _used(binding) & own) for binding in bindings]
    done: set[Any] = set()
    ordered = []
    while waiting:
        position = next((index for index, (_, needs) in enumerate(waiting) if needs <= done), 0)
        binding, _ = waiting.pop(position)
        done |= {binding.var, *_defined(binding)}
        ordered.append(binding)
    return ordered


def _defined(binding: Any) -> set[Any]:
    """The dims that a binding may define."""
    return (
        set(relax.analysis.definable_tir_vars_in_type(binding.ty))
        if isinstance(binding, relax.MatchCast)
        else set()
    )


def _used(binding: Any) -> set[Any]:
    """The variables and dims that a binding needs."""
    found: set[Any] = set(relax.analysis.tir_vars_in_type(binding.var.ty)) - _defined(binding)
    value = binding.value
    tvm_ffi.structural_walk(value, (tvm.ir.Var, found.add), order="post")
    return found - {binding.var}
