"""Which inputs index into something, and the range of indices that is valid: what sample inputs
must keep to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.ir.onnx.scope import Model, Scope

PASS_THROUGH = frozenset(
    {
        "Cast",
        "Identity",
        "Reshape",
        "Unsqueeze",
        "Squeeze",
        "Flatten",
        "Transpose",
        "Slice",
        "Expand",
        "Tile",
        "Clip",
        "Split",
    }
)
"""Operators whose first input's elements come out unchanged."""


def index_bounds(model: Model, inputs: set[str]) -> dict[str, tuple[int, int]]:
    """Bounds by input name: the tightest of all its uses as an index."""
    bounds: dict[str, tuple[int, int]] = {}
    for scope, name, low, high in model.indexed:
        source = _source(scope, name)
        if source in inputs:
            least, most = bounds.get(source, (low, high))
            bounds[source] = (max(least, low), min(most, high))
    return bounds


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
