"""Two models that a program holds at once: one by the book, one whose names no language takes."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.docs.models import rows


def mlp() -> onnx.ModelProto:
    """x[n, 32] to y[n, 7]."""
    return rows(32, 7)


def odd() -> onnx.ModelProto:
    """Names with other characters, keywords, names that fall together, whole numbers, booleans, an
    axis of two dims, and an output whose extent only a run knows.
    """
    nodes = [
        helper.make_node("Cast", ["a/b"], ["gate"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["class", "gate"], ["return"]),
        helper.make_node("Add", ["a.b", "one"], ["N"]),
        helper.make_node("NonZero", ["class"], ["where"]),
    ]
    inputs = [
        helper.make_tensor_value_info("class", TensorProto.FLOAT, ["n", "seq-len"]),
        helper.make_tensor_value_info("a.b", TensorProto.INT64, ["N"]),
        helper.make_tensor_value_info("a/b", TensorProto.BOOL, ["n", 1]),
    ]
    outputs = [
        helper.make_tensor_value_info("return", TensorProto.FLOAT, ["n", "seq-len"]),
        helper.make_tensor_value_info("N", TensorProto.INT64, ["N"]),
        helper.make_tensor_value_info("where", TensorProto.INT64, [2, "found"]),
    ]
    one = onnx.numpy_helper.from_array(np.array(1), "one")
    graph = helper.make_graph(nodes, "odd", inputs, outputs, [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
