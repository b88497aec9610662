"""The operators of a TFLite file as an import would read them, without compiling: for
`relaxd inspect`.
"""

from typing import Any

import numpy as np

from compiler.errors import CompileError
from compiler.ir.inspecting import attempt, count_operators, describe_interface, describe_node
from compiler.ir.onnx import operators  # noqa: F401  fills the registry
from compiler.ir.onnx.reader import read
from compiler.ir.tflite.file import File
from compiler.ir.tflite.model import label_of, missing_operators, model_of
from compiler.ir.tflite.states import NEXT, initial_contents, states_of
from compiler.ir.tflite.writer import operator_of
from relaxd.contract.request import CompileRequest


def inspect(file: File, request: CompileRequest) -> dict[str, Any]:
    """A JSON document as that of ONNX models, with `state` (what the model keeps between calls:
    its input, its output, and the number that it starts with, None where it starts with several).
    """
    trace: list[dict[str, Any]] = []
    imported, error = attempt(lambda: read(model_of(file), request, trace))
    if error is not None and error.get("node"):
        error = {**error, "node": operator_of(error["node"])}
    shapes = {operator_of(entry["node"]): entry["outputs"] for entry in trace}
    why = {each["node"]: each["why"] for each in missing_operators(file)}
    graph = file.graphs[0]
    nodes = [
        describe_node(label := label_of(position, each), each.name, why.get(label), shapes, error)
        for position, each in enumerate(graph.operators)
    ]
    names = [[graph.tensors[n].name for n in numbers] for numbers in (graph.inputs, graph.outputs)]
    return {
        "supported": error is None,
        "opsets": {},
        "state": _describe_states(file),
        **describe_interface(imported, *names),
        "operators": count_operators(nodes),
        "nodes": nodes,
        "error": error,
    }


def _describe_states(file: File) -> list[dict[str, Any]]:
    try:
        names = states_of(file).tensors
    except CompileError:
        return []
    contents = initial_contents(file)
    return [
        {"input": name, "output": name + NEXT, "initial": _only(contents.get(name))}
        for name in names
    ]


def _only(tensor: Any) -> Any:
    """The number that all elements of a constant are; 0 where there is none."""
    if tensor is None or tensor.data is None or not tensor.data.size:
        return 0
    first = tensor.data.reshape(-1)[0]
    return first.item() if np.all(tensor.data == first) else None
