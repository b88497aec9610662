"""What a run allocates with every dim at its maximum, with and without TVM's plan that lets tensors
share storage.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.tir.exprs import substitute
from relaxd.contract.dims import Dim

_TENSOR = "relax.builtin.alloc_tensor"
_STORAGE = "relax.memory.alloc_storage"


def report(before: tvm.IRModule, after: tvm.IRModule, dims: Sequence[Dim]) -> dict[str, Any]:
    """Bytes of all tensors `before` planning, and of the storage and of what stays outside of it
    `after`.

    `unplanned_bytes` is None, and so is `planned_bytes`, where a dim in them has no maximum.
    """
    return {
        "dims": "max",
        "unplanned_bytes": allocated(before, dims),
        "planned_bytes": allocated(after, dims),
    }


def allocated(module: tvm.IRModule, dims: Sequence[Dim]) -> int | None:
    """Bytes that `main` allocates, branches and loops counted once; None where a dim in them has no
    maximum.
    """
    largest = {dim.name: dim.highest for dim in dims}
    total = 0
    for extents, size in _allocations(module["main"]):
        values = [_at_most(extent, largest) for extent in extents]
        if None in values:
            return None
        total += size * prod(value for value in values if value is not None)
    return total


def _allocations(function: relax.Function) -> Iterator[tuple[Sequence[Any], int]]:
    """Extents and bytes an element; storage is counted in bytes."""
    found: list[Any] = []
    relax.analysis.post_order_visit(
        function.body, lambda node: found.append(node) if isinstance(node, relax.Call) else None
    )
    for call in found:
        name = str(getattr(call.op, "name", ""))
        if name == _STORAGE:
            yield call.args[0].values, 1
        elif name == _TENSOR:
            dtype = tvm.runtime.DataType(str(call.args[1].value))
            yield call.args[0].values, -(-dtype.bits * dtype.lanes // 8)


def _at_most(extent: Any, largest: dict[str, int | None]) -> int | None:
    values = {}
    for var in tirx.analysis.undefined_vars(extent):
        highest = largest.get(var.name)
        if highest is None:
            return None
        values[var] = tirx.IntImm("int64", highest)
    result = tvm.sym.Analyzer().simplify(substitute(extent, values))
    return int(result.value) if isinstance(result, tirx.IntImm) else None
