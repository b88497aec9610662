"""Several graphs as one of independent parts, which takes one build and one link."""

from collections.abc import Sequence

import onnx

from tests.fuzz.case import Case, Inputs, model_of


def merged(cases: Sequence[Case]) -> Case:
    """A case of all graphs side by side, over dims of their own; one alone is its own.

    All cases have the same number of points and are quantised alike.
    """
    first = cases[0]
    if len(cases) == 1:
        return first
    nodes: list[onnx.NodeProto] = []
    inputs: Inputs = {}
    constants: list[onnx.TensorProto] = []
    outputs: list[str] = []
    points: list[dict[str, int]] = [{} for _ in first.points]
    for place, case in enumerate(cases):
        stem, graph = f"g{place}_", onnx.GraphProto()
        graph.CopyFrom(case.model.graph)
        _rename(graph, stem)
        nodes += graph.node
        constants += graph.initializer
        outputs += [output.name for output in graph.output]
        for name, axes in case.inputs.items():
            inputs[stem + name] = tuple(
                stem + axis if isinstance(axis, str) else axis for axis in axes
            )
        for point, own in zip(points, case.points, strict=True):
            point.update({stem + name: extent for name, extent in own.items()})
    model = model_of(nodes, inputs, constants, outputs)
    return Case(model, tuple(points), first.quantized, first.seed)


def _rename(graph: onnx.GraphProto, stem: str) -> None:
    """Puts the stem before every name, those of branches and bodies included."""
    for named in (*graph.input, *graph.output, *graph.initializer):
        named.name = stem + named.name
    for node in graph.node:
        node.name = stem + node.name
        for names in (node.input, node.output):
            names[:] = [stem + name if name else "" for name in names]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, stem)
