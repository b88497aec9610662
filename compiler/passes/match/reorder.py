"""Puts the bindings of dataflow blocks into another order."""

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from compiler.passes.framework.bindings import dims_defined

Order = Callable[[Sequence[Any], set[Any]], list[Any]]
"""Gives the bindings of a block in another order; of them, and of the dims that are defined ahead
of the block.
"""


def reorder_bindings(module: tvm.IRModule, order: Order) -> tvm.IRModule:
    """Put every dataflow block in that order; the same module if nothing has to move."""
    functions = {
        gvar: _function(func, order) if isinstance(func, relax.Function) else func
        for gvar, func in module.functions.items()
    }
    if all(func.same_as(module[gvar]) for gvar, func in functions.items()):
        return module
    return relax.transform.Normalize()(
        tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    )


def _function(func: relax.Function, order: Order) -> relax.Function:
    if not isinstance(func.body, relax.SeqExpr):
        return func
    known = {
        dim for param in func.params for dim in relax.analysis.definable_tir_vars_in_type(param.ty)
    }
    blocks, moved = [], False
    for block in func.body.blocks:
        bindings = list(block.bindings)
        if isinstance(block, relax.DataflowBlock):
            ordered = order(bindings, known)
            if any(one is not other for one, other in zip(bindings, ordered, strict=True)):
                block, moved = relax.DataflowBlock(ordered), True
        known |= {dim for binding in bindings for dim in dims_defined(binding)}
        blocks.append(block)
    if not moved:
        return func
    return relax.Function(
        func.params, relax.SeqExpr(blocks, func.body.body), func.ret_ty, func.is_pure, func.attrs
    )
