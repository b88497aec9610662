"""Computes the bytes that a run allocates with every dim at its maximum, before and after TVM's
memory plan, which lets tensors share storage.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.ir.imported import Ranges
from compiler.passes.framework.base import Pass
from compiler.passes.framework.observers import Observer
from compiler.tir.exprs import substitute

_PLANNER = "StaticPlanBlockMemory"
_TENSOR = "relax.builtin.alloc_tensor"
_STORAGE = "relax.memory.alloc_storage"


class MemoryReport(Observer):
    """Observes the pass that plans memory.

    report: `unplanned_bytes` and `planned_bytes`, each None if it depends on a dim without a
    maximum.
    """

    def __init__(self, ranges: Ranges) -> None:
        self.report: dict[str, Any] = {"dims": "max"}
        self._ranges = ranges

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        """Counts all tensors."""
        if step.name == _PLANNER:
            self.report["unplanned_bytes"] = count_allocated(module, self._ranges)

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        """Counts the shared storage, and the tensors that are not part of the plan."""
        if step.name == _PLANNER:
            self.report["planned_bytes"] = count_allocated(module, self._ranges)


def count_allocated(module: tvm.IRModule, ranges: Ranges) -> int | None:
    """Bytes that `main` allocates, with branches and loop bodies counted once; None if they depend
    on a dim without a maximum.
    """
    total = 0
    for extents, size in _allocations(module["main"]):
        values = [_at_most(extent, ranges) for extent in extents]
        if None in values:
            return None
        total += size * prod(value for value in values if value is not None)
    return total


def _allocations(function: relax.Function) -> Iterator[tuple[Sequence[Any], int]]:
    """The extents of each allocation and the bytes of an element; storage counts in bytes."""
    calls: list[Any] = []
    relax.analysis.post_order_visit(
        function.body, lambda node: calls.append(node) if isinstance(node, relax.Call) else None
    )
    for call in calls:
        name = str(getattr(call.op, "name", ""))
        if name == _STORAGE:
            yield call.args[0].values, 1
        elif name == _TENSOR:
            dtype = tvm.runtime.DataType(str(call.args[1].value))
            yield call.args[0].values, -(-dtype.bits * dtype.lanes // 8)


def _at_most(extent: Any, ranges: Ranges) -> int | None:
    values = {}
    for var in tirx.analysis.undefined_vars(extent):
        dim = ranges.get(var)
        if dim is None or dim.highest is None:
            return None
        values[var] = tirx.IntImm("int64", dim.highest)
    result = tvm.sym.Analyzer().simplify(substitute(extent, values))
    return int(result.value) if isinstance(result, tirx.IntImm) else None
