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

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.bindings import dims_defined, used_by
from compiler.passes.match.reorder import reorder_bindings
from compiler.tir.exprs import op_name


@dataclass(frozen=True)
class ShapesFirst(ModulePass):
    """Moves each `relax.tensor_to_shape` of a dataflow block, and the casts that match its dims, in
    front of whatever they do not need. All else keeps its order, so that an operator stays behind
    the check of what it reads.
    """

    name = "shapes_first"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Reorders every Relax function; returns the same module if nothing has to move."""
        return reorder_bindings(module, _order)


def _order(bindings: Sequence[Any], known: set[Any]) -> list[Any]:
    """The bindings that shapes need, and the rest, each in the order given."""
    shapes: set[Any] = set()
    first: set[int] = set()
    for position, binding in enumerate(bindings):
        read = op_name(binding.value) == "relax.tensor_to_shape"
        if read or (isinstance(binding, relax.MatchCast) and binding.value in shapes):
            shapes.add(binding.var)
            first.add(position)
    wanted: set[Any] = set()
    for position in reversed(range(len(bindings))):
        binding = bindings[position]
        if position in first or not wanted.isdisjoint({binding.var, *dims_defined(binding)}):
            first.add(position)
            wanted |= used_by(binding)
    rest = (position for position in range(len(bindings)) if position not in first)
    return [bindings[position] for position in (*sorted(first), *rest)]
