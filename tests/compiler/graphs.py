"""Tiny ONNX models for the compiler's tests."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16


def model(
    nodes: list[onnx.NodeProto],
    *,
    initializers: list[onnx.TensorProto] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """float32 `x[batch, 16]` to float32 `y[batch, 16]` through the nodes."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])],
        initializers or [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def add_and_divide(rows: int = 1) -> onnx.ModelProto:
    """y = (x + w) / v."""
    random = np.random.default_rng(0)
    values = {name: random.random((rows, WIDTH), np.float32) + 1 for name in ("w", "v")}
    nodes = [
        helper.make_node("Add", ["x", "w"], ["sum"]),
        helper.make_node("Div", ["sum", "v"], ["y"]),
    ]
    return model(
        nodes, initializers=[numpy_helper.from_array(array, name) for name, array in values.items()]
    )


def sigmoid() -> onnx.ModelProto:
    """y = sigmoid(x), which no two implementations round alike."""
    return model([helper.make_node("Sigmoid", ["x"], ["y"])])


def vanishing() -> onnx.ModelProto:
    """y = sigmoid(x) - (1 + tanh(x / 2)) / 2: zero but for rounding, which no two share."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["one"]),
        helper.make_node("Mul", ["x", "half"], ["halved"]),
        helper.make_node("Tanh", ["halved"], ["tanh"]),
        helper.make_node("Mul", ["tanh", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "half"], ["other"]),
        helper.make_node("Sub", ["one", "other"], ["y"]),
    ]
    return model(nodes, initializers=[numpy_helper.from_array(np.float32(0.5), "half")])


def sorting() -> onnx.ModelProto:
    """The four greatest of a row with their indices, and where x is positive: `values`, `places`
    [batch, 4] and `found` [2, n].
    """
    nodes = [
        helper.make_node("TopK", ["x", "four"], ["values", "places"]),
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["found"]),
    ]
    constants = {"four": np.array([4], np.int64), "zero": np.array(0, np.float32)}
    outputs = {
        "values": (TensorProto.FLOAT, ["batch", 4]),
        "places": (TensorProto.INT64, ["batch", 4]),
        "found": (TensorProto.INT64, [2, "n"]),
    }
    graph = model(
        nodes,
        initializers=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    del graph.graph.output[:]
    graph.graph.output.extend(
        helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()
    )
    return graph


def count_words() -> onnx.ModelProto:
    """An operator on words."""
    return model(
        [
            helper.make_node("TfIdfVectorizer", ["x"], ["counts"], name="counting", mode="TF"),
            helper.make_node("Add", ["x", "counts"], ["y"]),
        ]
    )


def endless() -> onnx.ModelProto:
    """x doubled 2^62 times, float32[n]."""
    info, scalar = helper.make_tensor_value_info, numpy_helper.from_array
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Add", ["state", "state"], ["next"]),
        ],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("state", TensorProto.FLOAT, ["n"]),
        ],
        [info("again", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, ["n"])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)],
        "endless",
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("y", TensorProto.FLOAT, ["n"])],
        [scalar(np.asarray(1 << 62, np.int64), "trips")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
