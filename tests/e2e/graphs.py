"""Small ONNX models, made here."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def dense(width: int = 8, seed: int = 0) -> bytes:
    """y = relu(x @ w): x float32[n,width]."""
    weights = np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "project"),
        helper.make_node("Relu", ["h"], ["y"], "clip"),
    ]
    return _model(nodes, {"x": ["n", width]}, {"y": ["n", width]}, {"w": weights})


def unsupported() -> bytes:
    """Two nodes of an operator that nobody has, and one of a domain that nobody knows, between
    ordinary ones.
    """
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "fine"),
        helper.make_node("Conjure", ["a"], ["b"], "first_oddity", domain="com.example"),
        helper.make_node("Divine", ["b"], ["c"], "second_oddity", domain="com.example"),
        helper.make_node("Conjure", ["c"], ["y"], "third_oddity", domain="com.example"),
    ]
    return _model(nodes, {"x": ["n", 4]}, {"y": ["n", 4]}, {})


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[str | int]],
    outputs: dict[str, list[str | int]],
    weights: dict[str, np.ndarray],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
