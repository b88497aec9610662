"""A model evaluated in float64 by onnx's own evaluator, which shares no code with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from compiler.bisection.cuts import Array

_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def evaluated(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array] | None:
    """The outputs by name; None where the evaluator does not know an operator in float64."""
    from onnx.reference import ReferenceEvaluator

    try:
        wide = ReferenceEvaluator(widened(model))
        outputs = wide.run(None, {name: _wide(array) for name, array in feed.items()})
    # It raises whatever numpy raises for the operators that it has in float32 alone.
    except Exception as error:
        print(f"no float64: {error}", flush=True)
        return None
    named = zip(wide.output_names, outputs, strict=True)
    return {name: np.asarray(array) for name, array in named}


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 for every narrower float: of inputs, constants and casts."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy.graph):
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type in _NARROW:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        for tensor in graph.initializer:
            _widen(tensor)
        for node in graph.node:
            _widen_attributes(node)
    return copy


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)
            for inner in attribute.graphs:
                yield from _graphs(inner)


def _widen_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            _widen(attribute.t)
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _wide(array: Array) -> Array:
    narrow = array.dtype.name in ("float32", "float16", "bfloat16")
    return array.astype(np.float64) if narrow else array
