"""Orders bindings so that every dim is defined before its first use, which FuseOps does not keep:
it sorts bindings by the tensors they read alone.

Upstream: apache/tvm#20177 and #20195, open; apache/tvm#20333, open, would mend both. The pass can
go with the version that has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.bindings import dims_defined, used_by
from compiler.passes.match.reorder import reorder_bindings


@dataclass(frozen=True)
class DefineFirst(ModulePass):
    """Moves each binding of a dataflow block behind those that define its tensors and dims."""

    name = "define_first"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Reorders every Relax function; returns the same module if nothing has to move."""
        return reorder_bindings(module, _order)


def _order(bindings: Sequence[Any], known: set[Any]) -> list[Any]:
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
