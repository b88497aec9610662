import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import compiler
import relaxd


def model():
    """y = relu(x), and an empty constant as it is."""
    empty = numpy_helper.from_array(np.zeros((2, 0), np.float32), "empty")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "n"])
    e = helper.make_tensor_value_info("e", TensorProto.FLOAT, [2, 0])
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["empty"], ["e"])]
    graph = helper.make_graph(nodes, "g", [x], [y, e], [empty])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_library_with_an_empty_constant_opens(tmp_path):
    proto = model()
    onnx.checker.check_model(proto, full_check=True)
    manifest = compiler.compile_model(proto, output=tmp_path / "out", dims={"n": (1, 4)})
    assert [weight.shape for weight in manifest.weights] == [(2, 0)]
    outputs = relaxd.load(tmp_path / "out").run({"x": np.array([[-1, 2], [3, -4]], np.float32)})
    np.testing.assert_array_equal(outputs["y"], [[0, 2], [3, 0]])
    assert outputs["e"].shape == (2, 0)
    assert (
        json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]["weights.bin"]["size"]
        == 1
    )
