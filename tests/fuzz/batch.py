"""Several graphs as one of independent parts, which takes one build and one link."""

from collections.abc import Callable, Sequence

import onnx

from tests.fuzz.case import Case, Inputs, model_of


def merge(cases: Sequence[Case]) -> Case:
    """A case of all graphs side by side, over dims of their own; one alone is its own.

    All cases have the same number of points and are quantized alike.
    """
    first = cases[0]
    if len(cases) == 1:
        return first
    nodes: list[onnx.NodeProto] = []
    inputs: Inputs = {}
    constants: list[onnx.TensorProto] = []
    outputs: list[str] = []
    points: list[dict[str, int]] = [{} for _ in first.points]
    for position, case in enumerate(cases):
        stem, graph = f"g{position}_", onnx.GraphProto()
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


def answered_at_once(
    cases: Sequence[Case], answered: Callable[[Case], bool]
) -> list[tuple[list[Case], Case]]:
    """The graphs that ONNX Runtime runs, in one group, and each of the others in its own, each
    group with its union; answered: whether it runs a graph.

    One graph that it refuses would leave all of them beside float64 alone, where quantized ones
    round numbers between two steps otherwise.
    """
    union = merge(cases)
    if answered(union):
        return [(list(cases), union)]
    known = [answered(case) for case in cases]
    combined = [case for case, runs in zip(cases, known, strict=True) if runs]
    alone = [[case] for case, runs in zip(cases, known, strict=True) if not runs]
    groups = [combined, *alone] if combined else alone
    return [(group, merge(group)) for group in groups]


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
