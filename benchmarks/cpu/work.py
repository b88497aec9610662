"""The multiply-adds that a model's definition asks for at given inputs, counted on ONNX Runtime's
shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

_OPERATORS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


@dataclass(frozen=True)
class Work:
    """Floating point operations, a multiply-add being two: `products` of all matmuls and
    convolutions, `matmuls` of matmuls by constant weights.

    A convolution counts what its direct form takes, whatever an engine makes of it.
    """

    products: int
    matmuls: int


def works_of(path: Path, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> list[Work]:
    """The work of one run on each of `feeds`, which have the same inputs; operators inside
    of branches and loops are not counted.
    """
    model = onnx.load(path)
    constants = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type in _OPERATORS]
    names = {
        name
        for node in nodes
        for name in (*node.input, *node.output)
        if name and name not in constants
    } - set(feeds[0])
    session = _session_with(model, sorted(names))
    return [_work(nodes, constants, _shapes(session, feed)) for feed in feeds]


def _work(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, tuple[int, ...]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Work:
    counts = [(node, _flops(node, {**shapes, **constants})) for node in nodes]
    matmuls = (
        n
        for node, n in counts
        if node.op_type in ("MatMul", "Gemm") and any(name in constants for name in node.input[:2])
    )
    return Work(sum(n for _, n in counts), sum(matmuls))


def _flops(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    left, right, out = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    if node.op_type == "Conv":
        return 2 * prod(out) * prod(right[1:])
    if node.op_type == "ConvTranspose":
        return 2 * prod(left) * prod(right[1:])
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return 2 * prod(out) * left[0 if transposed else -1]


def _session_with(model: onnx.ModelProto, names: Sequence[str]) -> onnxruntime.InferenceSession:
    """The model with these tensors as its outputs."""
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _shapes(
    session: onnxruntime.InferenceSession, feed: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[int, ...]]:
    outputs = zip(session.get_outputs(), session.run(None, dict(feed)), strict=True)
    return {
        **{name: value.shape for name, value in feed.items()},
        **{output.name: np.shape(value) for output, value in outputs},
    }
