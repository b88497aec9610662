"""Where indices come from in an ONNX graph: followed back through operators that only move them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.index_bounds import Limit, without_coordinates
from compiler.ir.shapes.limits import end_of

if TYPE_CHECKING:
    from compiler.ir.onnx.node import Node
    from compiler.ir.onnx.scope import Model, Scope

PASS_THROUGH = frozenset(
    {
        *("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"),
        *("Transpose", "Slice", "Expand", "Tile", "Clip", "Split"),
    }
)
"""Operators whose first input's elements come out unchanged."""
_UNMOVED = frozenset({"Cast", "Identity"})
"""Those that leave elements where they are, too."""


def limit_values(
    b: Builder, node: Node, index: int, low: Extent, high: Extent, **more: Any
) -> None:
    """State that an input of the node has values from `low` to `high`, both included; `more`: as in
    `Limit`.
    """
    content = node.inputs[index] if node.has(index) else None
    # Constants are what they are.
    if content is not None and not (isinstance(content, Known) and not content.symbolic):
        limit = Limit(end_of(b.facts, low), end_of(b.facts, high), **more)
        node.scope.model.indexed.append((node.scope, node.proto.input[index], limit))


def uses(model: Model) -> Iterator[tuple[str, Limit]]:
    """Every use that limits a value: the name that it comes from, and the limit."""
    for scope, name, limit in model.indexed:
        source, moved = _source(scope, name)
        yield source, without_coordinates(limit) if moved else limit


def _source(scope: Scope | None, name: str) -> tuple[str, bool]:
    """The graph input that a value's elements come from, or the last name on the way to it; whether
    they change their positions on the way.
    """
    moved = False
    while scope is not None:
        producer = scope.producers.get(name)
        if producer is None:
            if name in scope.arguments:
                name = scope.arguments[name]
                scope = scope.caller
            else:
                scope = scope.outer
            continue
        if producer.op_type not in PASS_THROUGH or not producer.input:
            break
        moved = moved or producer.op_type not in _UNMOVED
        name = producer.input[0]
    return name, moved
