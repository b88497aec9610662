"""A small real net: convolutions with residuals, pooling, attention weights and a classifier."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 8


def net() -> onnx.ModelProto:
    """image[batch, 3, h, w] to scores[batch, 10] and mask[batch, 8, rows, columns]: 25 nodes with
    two residual blocks, an average pool, a branch that measures shapes, and two outputs.
    """
    draw = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {
        "stem_w": draw.standard_normal((CHANNELS, 3, 3, 3)) / 4,
        "class_w": draw.standard_normal((CHANNELS, 10)),
        "half": np.float32(0.5),
        "minus": np.array([-1], "int64"),
        "first": np.array(0, "int64"),
        "channels": np.array([CHANNELS], "int64"),
    }
    nodes = [helper.make_node("Conv", ["image", "stem_w"], ["stem"], pads=[1, 1, 1, 1])]
    nodes.append(helper.make_node("Relu", ["stem"], ["block0"]))
    for block in (1, 2):
        below = f"block{block - 1}"
        for layer in ("a", "b"):
            shape = (CHANNELS, CHANNELS, 3, 3)
            constants[f"w{block}{layer}"] = draw.standard_normal(shape) / 8
        node = helper.make_node
        nodes += [
            node("Conv", [below, f"w{block}a"], [f"a{block}"], f"conv{block}a", pads=[1, 1, 1, 1]),
            node("Relu", [f"a{block}"], [f"r{block}"]),
            node("Conv", [f"r{block}", f"w{block}b"], [f"b{block}"], pads=[1, 1, 1, 1]),
            node("Add", [f"b{block}", below], [f"s{block}"]),
            node("Relu", [f"s{block}"], [f"block{block}"]),
        ]
    nodes += [
        helper.make_node("AveragePool", ["block2"], ["pooled"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Sigmoid", ["pooled"], ["mask"], "mask"),
        helper.make_node("Mul", ["mask", "pooled"], ["gated"]),
        helper.make_node("Shape", ["gated"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["count"]),
        helper.make_node("Unsqueeze", ["count", "first"], ["counts"]),
        helper.make_node("Concat", ["counts", "channels", "minus"], ["rows"], axis=0),
        helper.make_node("Reshape", ["gated", "rows"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[-1], keepdims=0),
        helper.make_node("Tanh", ["mean"], ["squashed"], "squash"),
        helper.make_node("MatMul", ["squashed", "class_w"], ["product"]),
        helper.make_node("Mul", ["product", "half"], ["halved"]),
        helper.make_node("Softmax", ["halved"], ["scores"], axis=-1),
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
