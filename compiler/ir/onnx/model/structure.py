"""The digest of a model without the numbers of its weights."""

import hashlib
import math

import onnx

_FLOATS = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
)
_MOST_NUMBERS = 16
"""Floats that are settings, such as the limits of a Clip, and no weights."""


def structure_of(model: onnx.ModelProto) -> str:
    """A digest of all of the model but the numbers of its weights: initialisers of many floats."""
    digest = hashlib.sha256()
    graph = model.graph
    parts = (*graph.node, *graph.input, *graph.output, *graph.value_info, *model.functions)
    for part in (*parts, *graph.sparse_initializer, *model.opset_import):
        _add(digest, type(part).__name__.encode() + part.SerializeToString(deterministic=True))
    for tensor in graph.initializer:
        described = f"{tensor.name}\0{tensor.data_type}\0{list(tensor.dims)}"
        _add(digest, described.encode("utf-8", "surrogatepass"))
        if tensor.data_type not in _FLOATS or math.prod(tensor.dims) <= _MOST_NUMBERS:
            _add(digest, tensor.SerializeToString(deterministic=True))
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", content: bytes) -> None:
    digest.update(len(content).to_bytes(8, "little"))
    digest.update(content)
