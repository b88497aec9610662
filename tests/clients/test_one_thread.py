"""Modules of one thread, by the npm package in node: loops that other targets always share out."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler import compile_model
from tests.clients.test_js import HERE, PACKAGE, run_node
from tests.support.models.small import reference

pytestmark = pytest.mark.slow

CHANNELS, SIDE = 32, 24


def fix() -> onnx.ModelProto:
    """A convolution, a softmax and a product whose extents are known and large."""
    draw = np.random.default_rng(0)
    weights = {
        "kernel": draw.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 17,
        "matrix": draw.standard_normal((SIDE, SIDE * 8)) / 5,
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Softmax", ["c"], ["s"], axis=-1),
        helper.make_node("MatMul", ["s", "matrix"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "fixed",
        [value("x", onnx.TensorProto.FLOAT, [1, CHANNELS, SIDE, SIDE])],
        [value("y", onnx.TensorProto.FLOAT, [1, CHANNELS, SIDE, SIDE * 8])],
        [numpy_helper.from_array(w.astype("float32"), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    return model


@pytest.mark.parametrize("target", ["wasm32", "wasm32-simd"])
def test_one_thread_does_the_whole_of_loops_of_known_extents(target: str, tmp_path: Path) -> None:
    bundle = tmp_path / "out"
    compile_model(fix(), output=bundle, target=target, options={"profile": False, "verify": False})
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, SIDE, SIDE)).astype("float32")
    (bundle / "point.json").write_text(json.dumps(x.ravel().tolist()))
    program = [str(HERE / "answer.mjs"), str(PACKAGE / "src"), str(bundle)]
    result = json.loads(run_node(tmp_path, bundle, *program))
    (wanted,) = reference(fix(), {"x": x})
    np.testing.assert_allclose(np.reshape(result, wanted.shape), wanted, rtol=1e-4, atol=1e-5)
