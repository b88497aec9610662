"""The weights that an ONNX model stores, wherever it keeps them."""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from compiler.ir.onnx.model.walking import walk
from compiler.ir.ops.quantized.quantize_weights import apply_quantization
from compiler.ir.weights import LEAST, FileWeight, WeightQuantization, digest_of


def file_weights(model: onnx.ModelProto) -> dict[bytes, FileWeight]:
    """The large float32 constants by digest; those of equal contents are one."""
    weights: dict[bytes, FileWeight] = {}
    for name, tensor in _weights(model):
        key = digest_of(numpy_helper.to_array(tensor))
        names = weights[key].names if key in weights else ()
        weights[key] = FileWeight((*names, name), tuple(tensor.dims))
    return weights


def quantize_weights(model: onnx.ModelProto, roundings: Mapping[bytes, WeightQuantization]) -> None:
    """Quantize the constants of those digests in place, and store them dequantized."""
    for _, tensor in _weights(model):
        array = numpy_helper.to_array(tensor)
        form = roundings.get(digest_of(array))
        if form is not None:
            tensor.CopyFrom(numpy_helper.from_array(apply_quantization(array, form), tensor.name))


def _weights(model: onnx.ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Float32 constants of at least LEAST elements, with the names that nodes read them by."""
    for name, tensor in _constants(model):
        if tensor.data_type == TensorProto.FLOAT and np.prod(tensor.dims, dtype=object) >= LEAST:
            yield name, tensor


def _constants(model: onnx.ModelProto) -> Iterator[tuple[str, TensorProto]]:
    graph = model.graph
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    nodes = [*graph.node, *(node for function in model.functions for node in function.node)]
    for node in walk(nodes):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t
            for body in (attribute.g, *attribute.graphs):
                yield from ((tensor.name, tensor) for tensor in body.initializer)
