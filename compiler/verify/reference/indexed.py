"""Which outputs of an ONNX model are indices into floats: of equal values, or of nearly equal ones,
any index is right, and which of them is given follows from the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_INDEXING = {("ArgMax", 0): 0, ("ArgMin", 0): 0, ("TopK", 1): -1}
"""By operator and the number of its output that is an index: the default of its axis."""
_SAME_ORDER = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that keep elements and their order."""


@dataclass(frozen=True)
class Source:
    """The value that an output's indices point into, by its name in the graph, and the axis."""

    value: str
    axis: int


def sources_of(path: Path) -> dict[str, Source]:
    """By output of the model, what its elements are indices into."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    makers = {name: (node, index) for node in graph.node for index, name in enumerate(node.output)}
    sources = {entry.name: _source(entry.name, makers) for entry in graph.output}
    return {name: source for name, source in sources.items() if source is not None}


def _source(name: str, makers: Mapping[str, tuple[onnx.NodeProto, int]]) -> Source | None:
    while name in makers:
        node, index = makers[name]
        default = _INDEXING.get((node.op_type, index))
        if node.domain not in ("", "ai.onnx"):
            return None
        if default is not None:
            axis = next((each.i for each in node.attribute if each.name == "axis"), default)
            return Source(node.input[0], axis)
        if node.op_type not in _SAME_ORDER:
            return None
        name = node.input[0]
    return None


def show(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Make outputs of values of the graph, in place."""
    from onnx import helper

    known = {entry.name for entry in model.graph.output}
    model.graph.output.extend(
        helper.make_empty_tensor_value_info(name)
        for name in dict.fromkeys(names)
        if name not in known
    )
