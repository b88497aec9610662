"""Where indices come from in an ONNX graph: followed back through operators that only move them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.ir.onnx.scope import Model, Scope

PASS_THROUGH = frozenset(
    {
        *("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"),
        *("Transpose", "Slice", "Expand", "Tile", "Clip", "Split"),
    }
)
"""Operators whose first input's elements come out unchanged."""


def uses(model: Model) -> Iterator[tuple[str, int, int]]:
    """Every use of a value as an index: the name that it comes from, least and greatest index."""
    for scope, name, low, high in model.indexed:
        yield _source(scope, name), low, high


def _source(scope: Scope | None, name: str) -> str:
    """The graph input that a value's elements come from, or the last name on the way to it."""
    while scope is not None:
        producer = scope.producers.get(name)
        if producer is None:
            scope = scope.outer
            continue
        if producer.op_type not in PASS_THROUGH or not producer.input:
            return name
        name = producer.input[0]
    return name
