"""A model of opset 6 as one of opset 7, which ONNX Runtime has kernels for: broadcasting by
attributes becomes axes of 1, and flags that say that a model does not train go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_ALIGNED = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"}
)
"""Operators whose second input's axes begin at the first one's axis of that number."""
_GONE = {
    **dict.fromkeys((*_ALIGNED, "Gemm"), ("broadcast", "axis")),
    **dict.fromkeys(("BatchNormalization", "Dropout"), ("is_test",)),
    **dict.fromkeys(("RNN", "LSTM", "GRU"), ("output_sequence",)),
}
"""Attributes that opset 7 has not."""


def at_opset_7(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model, whose opset is 6, at opset 7."""
    from onnx import shape_inference

    copy = shape_inference.infer_shapes(model)
    for entry in copy.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = 7
    _rewrite(copy.graph, {})
    return copy


def _rewrite(graph: onnx.GraphProto, outer: Mapping[str, int]) -> None:
    ranks = {**outer, **dict(_ranks(graph))}
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            # To write to a graph that is not there would make it.
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                _rewrite(inner, ranks)
        nodes += [*_align(node, ranks), node]
        gone = _GONE.get(node.op_type, ())
        retained = [attribute for attribute in node.attribute if attribute.name not in gone]
        del node.attribute[:]
        node.attribute.extend(retained)
    del graph.node[:]
    graph.node.extend(nodes)


def _ranks(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            yield value.name, len(value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name, len(tensor.dims)


def _align(node: onnx.NodeProto, ranks: Mapping[str, int]) -> list[onnx.NodeProto]:
    """The node that gives the second input axes of 1 behind its own, where it needs some; `node`
    reads its result.
    """
    from onnx import helper

    first, second = (ranks.get(name) for name in [*node.input[:2], "", ""][:2])
    if first is None or second is None:
        return []
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    behind = 0
    if node.op_type in _ALIGNED and attributes.get("broadcast") and "axis" in attributes:
        behind = first - attributes["axis"] % max(first, 1) - second
    elif node.op_type == "PRelu" and second == 1:
        behind = first - 2
    if behind <= 0:
        return []
    wide = f"{node.output[0]}/aligned"
    axes = list(range(second, second + behind))
    unsqueeze = helper.make_node("Unsqueeze", [node.input[1]], [wide], axes=axes)
    node.input[1] = wide
    return [unsqueeze]
