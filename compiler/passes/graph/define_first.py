"""Orders bindings so that every dim is defined before its first use, which FuseOps does not keep:
it sorts bindings by the tensors they read alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.passes.framework.base import Phase
from compiler.passes.framework.bindings import dims_defined, used_by


@dataclass(frozen=True)
class DefineFirst:
    """Moves each binding of a dataflow block behind those that define its tensors and dims."""

    name = "define_first"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Reorders every Relax function; returns the same module if nothing has to move."""
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
        known |= {dim for binding in bindings for dim in dims_defined(binding)}
        blocks.append(block)
    if not moved:
        return func
    return relax.Function(
        func.params, relax.SeqExpr(blocks, func.body.body), func.ret_ty, func.is_pure, func.attrs
    )


def _ordered(bindings: Sequence[Any], known: set[Any]) -> list[Any]:
    """The bindings in their given order, except that each comes after those that it needs.

    Bindings that need each other stay where they are: `check_lowered` reports them.
    """
    # Only bindings of this block can be out of order: what earlier blocks define is there.
    own = (
        {binding.var for binding in bindings}
        | {dim for binding in bindings for dim in dims_defined(binding)}
    ) - known
    waiting = [(binding, used_by(binding) & own) for binding in bindings]
    done: set[Any] = set()
    ordered = []
    while waiting:
        position = next((index for index, (_, needs) in enumerate(waiting) if needs <= done), 0)
        binding, _ = waiting.pop(position)
        done |= {binding.var, *dims_defined(binding)}
        ordered.append(binding)
    return ordered
