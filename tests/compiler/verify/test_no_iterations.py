"""A loop that runs no iteration has scan outputs whose further extents the specification leaves
open.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.verify.judge.judged import adopt_empty_shape
from tests.compiler.building import build, report

NODE = helper.make_node


def _model(count: float) -> onnx.ModelProto:
    """A loop of max(x) * 0 + `count` iterations, which only run time knows."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            NODE("Identity", ["go"], ["on"]),
            NODE("Add", ["v", "v"], ["w"]),
            NODE("Tanh", ["v"], ["s"]),
        ],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("v", TensorProto.FLOAT, ["n"]),
        ],
        [
            info("on", TensorProto.BOOL, []),
            info("w", TensorProto.FLOAT, ["n"]),
            info("s", TensorProto.FLOAT, ["n"]),
        ],
    )
    nodes = [
        NODE("ReduceMax", ["x"], ["most"], keepdims=0),
        NODE("Mul", ["most", "zero"], ["nothing"]),
        NODE("Add", ["nothing", "count"], ["number"]),
        NODE("Cast", ["number"], ["trips"], to=TensorProto.INT64),
        NODE("Loop", ["trips", "", "x"], ["last", "all"], body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("last", TensorProto.FLOAT, ["n"]), info("all", TensorProto.FLOAT, ["k", "n"])],
        [
            helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("count", TensorProto.FLOAT, [], [count]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_outputs_without_elements_agree(tmp_path: Path) -> None:
    settings = {"dims": {"n": (2, 5)}, "options": {"verify": True, "profile": False}}
    build(tmp_path / "out", _model(0), **settings)
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "passed"


def test_elements_keep_their_shape() -> None:
    want = np.zeros((0, 0))
    assert adopt_empty_shape(want, np.zeros((0, 3))).shape == (0, 3)
    assert adopt_empty_shape(want, np.zeros((1, 3))).shape == (0, 0)
    assert adopt_empty_shape(want, np.zeros(0)).shape == (0, 0)
    assert adopt_empty_shape(np.zeros((2, 0)), np.zeros((2, 3))).shape == (2, 0)
