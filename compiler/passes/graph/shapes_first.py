"""Takes what is read as a shape, as checks of indices and extents that a run computes are, in front
of the rest.

TVM cuts a dataflow block in two where a tensor becomes a shape, and fuses nothing across the cut.
Of two gathers that are concatenated, the check of the second one's indices kept the first a kernel
of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.passes.framework.base import Phase
from compiler.passes.framework.bindings import dims_defined, used_by
from compiler.tir.exprs import op_name


@dataclass(frozen=True)
class ShapesFirst:
    """Moves each `relax.tensor_to_shape` of a dataflow block, and the casts that match its dims, in
    front of whatever they do not need. All else keeps its order, so that an operator stays behind
    the check of what it reads.
    """

    name = "shapes_first"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Reorders every Relax function; returns the same module if nothing has to move."""
        functions = {
            gvar: _function(func) if isinstance(func, relax.Function) else func
            for gvar, func in module.functions.items()
        }
        if all(func.same_as(module[gvar]) for gvar, func in functions.items()):
            return module
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _function(func: relax.Function) -> relax.Function:
    if not isinstance(func.body, relax.SeqExpr):
        return func
    blocks, moved = [], False
    for block in func.body.blocks:
        if isinstance(block, relax.DataflowBlock):
            bindings = list(block.bindings)
            ordered = _ordered(bindings)
            if any(one is not other for one, other in zip(bindings, ordered, strict=True)):
                block, moved = relax.DataflowBlock(ordered), True
        blocks.append(block)
    if not moved:
        return func
    return relax.Function(
        func.params, relax.SeqExpr(blocks, func.body.body), func.ret_ty, func.is_pure, func.attrs
    )


def _ordered(bindings: Sequence[Any]) -> list[Any]:
    """The bindings that shapes need, and the rest, each in the order given."""
    shapes: set[Any] = set()
    first: set[int] = set()
    for place, binding in enumerate(bindings):
        read = op_name(binding.value) == "relax.tensor_to_shape"
        if read or (isinstance(binding, relax.MatchCast) and binding.value in shapes):
            shapes.add(binding.var)
            first.add(place)
    wanted: set[Any] = set()
    for place in reversed(range(len(bindings))):
        binding = bindings[place]
        if place in first or not wanted.isdisjoint({binding.var, *dims_defined(binding)}):
            first.add(place)
            wanted |= used_by(binding)
    rest = (place for place in range(len(bindings)) if place not in first)
    return [bindings[place] for place in (*sorted(first), *rest)]
