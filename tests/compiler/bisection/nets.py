"""A small real net: convolutions with a residual, pooling, attention weights and a classifier; and
its end by itself.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 8


def _classified(rows: str) -> list[onnx.NodeProto]:
    """From the rows of channels to the scores, by the constants `class_w` and `half`."""
    return [
        helper.make_node("ReduceMean", [rows], ["mean"], axes=[-1], keepdims=0),
        helper.make_node("Tanh", ["mean"], ["squashed"], "squash"),
        helper.make_node("MatMul", ["squashed", "class_w"], ["product"]),
        helper.make_node("Mul", ["product", "half"], ["halved"]),
        helper.make_node("Softmax", ["halved"], ["scores"], axis=-1),
    ]


def net() -> onnx.ModelProto:
    """image[batch, 3, h, w] to scores[batch, 10] and mask[batch, 8, rows, columns]: 20 nodes with
    a residual block, an average pool, a branch that measures shapes, and two outputs.
    """
    draw = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {
        "stem_w": draw.standard_normal((CHANNELS, 3, 3, 3)) / 4,
        "class_w": draw.standard_normal((CHANNELS, 10)),
        "half": np.array(0.5, np.float32),
        "minus": np.array([-1], "int64"),
        "first": np.array(0, "int64"),
        "channels": np.array([CHANNELS], "int64"),
    }
    nodes = [helper.make_node("Conv", ["image", "stem_w"], ["stem"], pads=[1, 1, 1, 1])]
    nodes.append(helper.make_node("Relu", ["stem"], ["block0"]))
    for layer in ("a", "b"):
        constants[f"w{layer}"] = draw.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 8
    nodes += [
        helper.make_node("Conv", ["block0", "wa"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "wb"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "block0"], ["s"]),
        helper.make_node("Relu", ["s"], ["block1"]),
    ]
    nodes += [
        helper.make_node("AveragePool", ["block1"], ["pooled"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Sigmoid", ["pooled"], ["mask"], "mask"),
        helper.make_node("Mul", ["mask", "pooled"], ["gated"]),
        helper.make_node("Shape", ["gated"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["count"]),
        helper.make_node("Unsqueeze", ["count", "first"], ["counts"]),
        helper.make_node("Concat", ["counts", "channels", "minus"], ["rows"], axis=0),
        helper.make_node("Reshape", ["gated", "rows"], ["flat"]),
        *_classified("flat"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("image", TensorProto.FLOAT, ["batch", 3, "h", "w"])],
        [
            value("scores", TensorProto.FLOAT, ["batch", 10]),
            value("mask", TensorProto.FLOAT, ["batch", CHANNELS, "rows", "columns"]),
        ],
        [
            numpy_helper.from_array(
                np.asarray(array, array.dtype if array.dtype == "int64" else "float32"), name
            )
            for name, array in constants.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def classifier() -> onnx.ModelProto:
    """The net's end, after a rectifier: rows[batch, 8, h] to scores[batch, 10]."""
    draw = np.random.default_rng(0)
    constants = {
        "class_w": draw.standard_normal((CHANNELS, 10)).astype("float32"),
        "half": np.array(0.5, np.float32),
    }
    nodes = [
        helper.make_node("Relu", ["rows"], ["kept"]),
        *_classified("kept"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "classifier",
        [value("rows", TensorProto.FLOAT, ["batch", CHANNELS, "h"])],
        [value("scores", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
