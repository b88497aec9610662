"""Follows what an attention node reads of its cache's lengths back to the graph's inputs."""

from compiler.ir.caches import CacheUse
from compiler.ir.graph.builder import Builder
from compiler.ir.onnx.indices import PASS_THROUGH
from compiler.ir.onnx.node import Node
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.symbols import axis_of
from relaxd.contract.bundle.state import Part
from relaxd.contract.dims.axes import Axis

_COUNTING = PASS_THROUGH | {"ReduceSum", "Sub"}


def note_cache(
    b: Builder, node: Node, entries: Extent, rows: Extent, room: Extent, total: Extent
) -> None:
    """Note that the node attends over a cache: input 5 holds the position of each entry's last key,
    input 6 the greatest number of keys, and input 9, where it is there, the new tokens' positions.
    """
    parts = dict([_lengths(node)])
    if node.has(9):
        parts[_walk(node, 9)[0]] = Part.POSITIONS
    batch, new, past, most = (_axis(b, extent) for extent in (entries, rows, room, total))
    if most is None:
        parts[_walk(node, 6)[0]] = Part.TOTAL
    if batch is not None and new is not None and past is not None:
        node.scope.model.caches.append(CacheUse(batch, new, past, most, parts))


def _axis(b: Builder, extent: Extent) -> Axis | None:
    """The extent in terms of the inputs' dims, None where a run alone knows it."""
    return None if b.facts.is_introduced(extent) else axis_of(b.facts.simplify(extent))


def _lengths(node: Node) -> tuple[str, Part]:
    name, passed = _walk(node, 5)
    if "ReduceSum" in passed:
        return name, Part.MASK
    return name, Part.LENGTH if "Sub" in passed else Part.LAST


def _walk(node: Node, index: int) -> tuple[str, set[str]]:
    """The name that the input's numbers come from, and the operators on the way."""
    name, scope, passed = node.proto.input[index], node.scope, set[str]()
    while scope is not None:
        producer = scope.producers.get(name)
        if producer is None:
            scope = scope.outer  # type: ignore[assignment]
            continue
        if producer.op_type not in _COUNTING or not producer.input:
            break
        passed.add(producer.op_type)
        name = producer.input[0]
    return name, passed
