"""A model whose inputs and outputs of narrow element types are float32, which holds all of their
numbers: ONNX Runtime's Python interface has no arrays of them.
"""

from collections.abc import Iterable

import onnx
from onnx import TensorProto, helper

from compiler.ir.onnx.model.walking import walk
from relaxd.contract.dims.tensors import STORAGE

_ENDING = "__narrow"
_INTEGERS = (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2)


def element_of(value: onnx.ValueInfoProto) -> str:
    """The name of a value's element type, empty for what is no tensor."""
    code = value.type.tensor_type.elem_type
    known = value.type.HasField("tensor_type") and code
    return helper.tensor_dtype_to_np_dtype(code).name if known else ""


def has_storage_types(model: onnx.ModelProto) -> bool:
    """True if an input or an output is of such a type."""
    values = (*model.graph.input, *model.graph.output)
    return any(element_of(value) in STORAGE for value in values)


def truncates(model: onnx.ModelProto) -> bool:
    """True if a node casts to an integer of 2 or 4 bits: onnx's evaluator truncates floats there,
    as ONNX has it for every integer; ONNX Runtime rounds them.
    """
    nodes = list(walk((*model.graph.node, *(n for f in model.functions for n in f.node))))
    likely = any(node.op_type == "CastLike" for node in nodes) and has_storage_types(model)
    return likely or any(
        a.name == "to" and a.i in _INTEGERS
        for node in nodes
        if node.op_type == "Cast"
        for a in node.attribute
    )


def widen(model: onnx.ModelProto) -> None:
    """Put casts behind those inputs and before those outputs, which keep their names."""
    graph = model.graph
    fixed = {tensor.name for tensor in graph.initializer}
    inputs = [v for v in graph.input if element_of(v) in STORAGE and v.name not in fixed]
    inner = {v.name for v in (*inputs, *graph.output) if element_of(v) in STORAGE}
    _rename(graph, inner)
    first = [_cast(v.name, v.name + _ENDING, v.type.tensor_type.elem_type) for v in inputs]
    passed = {v.name for v in inputs}
    last = [
        _cast(v.name + _ENDING, v.name, TensorProto.FLOAT)
        for v in graph.output
        if v.name in inner and v.name not in passed
    ]
    for value in (*inputs, *(v for v in graph.output if v.name in inner)):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)


def _cast(source: str, target: str, code: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=code)


def _rename(graph: onnx.GraphProto, names: Iterable[str]) -> None:
    """Give the values of these names another one, in nodes at any depth and among constants."""
    for node in graph.node:
        for listed in (node.input, node.output):
            for index, name in enumerate(listed):
                if name in names:
                    listed[index] = name + _ENDING
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, names)
    for tensor in graph.initializer:
        tensor.name += _ENDING if tensor.name in names else ""
    for value in graph.value_info:
        value.name += _ENDING if value.name in names else ""
