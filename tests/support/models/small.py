"""Models of a few operators that show what kernels on grids must do, and ONNX Runtime's answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.models.known import Feed

WIDTH = 32


def perceptron() -> onnx.ModelProto:
    """x[batch, seq, 32] through two products, residual and softmax."""
    draw = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        name: draw.standard_normal((WIDTH, WIDTH)).astype("float32") / 8
        for name in ("first", "second")
    }
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["inner"]),
        helper.make_node("Relu", ["inner"], ["active"]),
        helper.make_node("MatMul", ["active", "second"], ["outer"]),
        helper.make_node("Add", ["outer", "x"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=-1),
    ]
    shape = ["batch", "seq", WIDTH]
    value = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, shape)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mask() -> onnx.ModelProto:
    """x[batch, seq, 32] where mask[batch, seq] is not 0, and its product with weights; booleans are
    kept between kernels.
    """
    weights = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype("float32")
    nodes = [
        helper.make_node("Equal", ["mask", "zero"], ["hidden"]),
        helper.make_node("Unsqueeze", ["hidden", "last"], ["wide"]),
        helper.make_node("Gather", ["wide", "first"], ["leading"], axis=1),
        helper.make_node("Where", ["wide", "low", "x"], ["kept"]),
        helper.make_node("MatMul", ["kept", "weights"], ["product"]),
        helper.make_node("Where", ["leading", "product", "kept"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    shape = ["batch", "seq", WIDTH]
    initializers = [
        numpy_helper.from_array(np.array(array), name)
        for name, array in (
            ("zero", np.int64(0)),
            ("last", [-1]),
            ("first", [0]),
            ("low", np.float32(-9)),
            ("weights", weights),
        )
    ]
    inputs = [value("x", TensorProto.FLOAT, shape), value("mask", TensorProto.INT64, shape[:2])]
    graph = helper.make_graph(
        nodes, "g", inputs, [value("y", TensorProto.FLOAT, shape)], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def reference(model: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    import onnxruntime

    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, feed)


def convolutions() -> onnx.ModelProto:
    """x[n, 3, h, w] to y[n, 10]: convolutions, one of them depthwise, pooling and a product."""
    draw = np.random.default_rng(3)
    weights: dict[str, np.ndarray] = {
        name: (draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")
        for name, shape in (
            ("first", (16, 3, 3, 3)),
            ("bias", (16,)),
            ("second", (24, 16, 3, 3)),
            ("depthwise", (24, 1, 3, 3)),
            ("last", (10, 24)),
        )
    }
    around = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "first", "bias"], ["a"], strides=[2, 2], **around),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], **around),
        helper.make_node("Conv", ["c", "second"], ["d"], **around),
        helper.make_node("HardSwish", ["d"], ["e"]),
        helper.make_node("Conv", ["e", "depthwise"], ["f"], group=24, **around),
        helper.make_node("Add", ["e", "f"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("Gemm", ["i", "last"], ["y"], transB=1),
    ]
    return _model(nodes, [("x", ["n", 3, "h", "w"])], ("y", ["n", 10]), weights)


def decoder() -> onnx.ModelProto:
    """One head of attention of q[batch, seq, 32] to past[batch, past, 32] and q, normalised."""
    draw = np.random.default_rng(4)
    weights: dict[str, np.ndarray] = {
        "scale": np.array([1 / np.sqrt(WIDTH)], np.float32),
        "gamma": draw.standard_normal(WIDTH).astype("float32"),
        "beta": draw.standard_normal(WIDTH).astype("float32"),
    }
    nodes = [
        helper.make_node("Concat", ["past", "q"], ["keys"], axis=1),
        helper.make_node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "keys"], ["mixed"]),
        helper.make_node("Add", ["mixed", "q"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "gamma", "beta"], ["y"]),
    ]
    shape = ["batch", "seq", WIDTH]
    inputs = [("q", shape), ("past", ["batch", "past", WIDTH])]
    return _model(nodes, inputs, ("y", shape), weights)


def encoder(width: int = 64, heads: int = 4, words: int = 50) -> onnx.ModelProto:
    """A transformer's layer over ids[batch, seq], int64 below `words`, to y[batch, seq, width]."""
    draw = np.random.default_rng(5)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (draw.standard_normal((rows, columns)) / np.sqrt(rows)).astype("float32")

    weights: dict[str, np.ndarray] = {
        "words": draw.standard_normal((words, width)).astype("float32"),
        **{name: matrix(width, width) for name in ("wq", "wk", "wv", "wo")},
        "up": matrix(width, 4 * width),
        "down": matrix(4 * width, width),
        "gamma": np.ones(width, "float32"),
        "beta": np.full(width, 0.5, "float32"),
        "split": np.array([0, 0, heads, width // heads]),
        "join": np.array([0, 0, width]),
        "scale": np.array([np.sqrt(heads / width)], np.float32),
    }
    nodes = [helper.make_node("Gather", ["words", "ids"], ["x"])]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            helper.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [name], perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "join"], ["joined"]),
        helper.make_node("MatMul", ["joined", "wo"], ["attended"]),
        helper.make_node("Add", ["attended", "x"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "gamma", "beta"], ["middle"]),
        helper.make_node("MatMul", ["middle", "up"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["active"]),
        helper.make_node("MatMul", ["active", "down"], ["narrow"]),
        helper.make_node("Add", ["narrow", "middle"], ["second"]),
        helper.make_node("LayerNormalization", ["second", "gamma", "beta"], ["y"]),
    ]
    created = _model(nodes, [("ids", ["batch", "seq"])], ("y", ["batch", "seq", width]), weights)
    created.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    return created


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, list[Any]]],
    output: tuple[str, list[Any]],
    weights: Feed,
) -> onnx.ModelProto:
    def value(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes, "g", [value(*arguments) for arguments in inputs], [value(*output)], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
