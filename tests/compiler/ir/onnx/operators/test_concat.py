"""Concatenations whose extents must agree on the other axes, as only a run can tell."""

import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime, build

node = helper.make_node


def test_a_dim_is_as_long_as_the_constant_beside_it() -> None:
    constants = {"c": normal(13, 2, 4), "w": normal(7, 5)}
    nodes = [
        node("Concat", ["x", "c"], ["y"], axis=1),
        node("Concat", ["c", "x", "c"], ["z"], axis=1),
        node("Round", ["y"], ["rounded"]),
        node("Concat", ["x", "x1"], ["wide"], axis=2),
        node("MatMul", ["wide", "w"], ["product"]),
    ]
    inputs = {"x": "float32[s,t,4]", "x1": "float32[13,2,3]"}
    model = model_of(nodes, inputs, constants)
    assert_like_onnxruntime(model, [{"x": normal(13, 2, 4), "x1": normal(13, 2, 3)}])
    with pytest.raises(Exception, match="differ on axis 0"):
        build(model).run({"x": normal(12, 2, 4), "x1": normal(13, 2, 3)})
