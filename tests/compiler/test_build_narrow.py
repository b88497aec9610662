"""Whole builds of models with inputs and outputs of 8 bits and fewer: verified, loaded and run."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxd
from compiler.errors import VerifyError
from tests.compiler.building import build, failing, report

pytestmark = pytest.mark.slow

NODE, INFO = helper.make_node, helper.make_tensor_value_info
QUIET = {"profile": False}


def model_of(nodes: list[onnx.NodeProto], inputs: Any, outputs: Any, opset: int) -> onnx.ModelProto:
    scale = numpy_helper.from_array(np.array([0.5, 0.25, 2], np.float32), "s")
    graph = helper.make_graph(nodes, "narrow", inputs, outputs, [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def small_types() -> onnx.ModelProto:
    """A product of 8-bit floats and 4-bit weights, given as float32, float8 and int4."""
    nodes = [
        NODE("Cast", ["x"], ["real"], to=TensorProto.FLOAT),
        NODE("DequantizeLinear", ["w", "s"], ["weight"], axis=1),
        NODE("MatMul", ["real", "weight"], ["y"]),
        NODE("Cast", ["y"], ["z"], to=TensorProto.FLOAT8E5M2),
        NODE("QuantizeLinear", ["y", "s"], ["v"], axis=1, output_dtype=TensorProto.INT4),
    ]
    inputs = [
        INFO("x", TensorProto.FLOAT8E4M3FN, ["batch", 5]),
        INFO("w", TensorProto.INT4, [5, 3]),
    ]
    outputs = [
        INFO("y", TensorProto.FLOAT, ["batch", 3]),
        INFO("z", TensorProto.FLOAT8E5M2, ["batch", 3]),
        INFO("v", TensorProto.INT4, ["batch", 3]),
    ]
    return model_of(nodes, inputs, outputs, 23)


def cast(target: int) -> onnx.ModelProto:
    nodes = [NODE("Cast", ["x"], ["y"], to=target)]
    inputs = [INFO("x", TensorProto.FLOAT, ["batch", 5])]
    return model_of(nodes, inputs, [INFO("y", target, ["batch", 5])], 25)


def around_functions() -> onnx.ModelProto:
    """A cast from bfloat16 before a function, one to it behind a function, and both between two."""
    nodes = [
        NODE("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        NODE("Tanh", ["wide"], ["y"]),
        NODE("Sigmoid", ["x"], ["part"]),
        NODE("Cast", ["part"], ["z"], to=TensorProto.BFLOAT16),
        NODE("Tanh", ["x"], ["first"]),
        NODE("Cast", ["first"], ["narrow"], to=TensorProto.BFLOAT16),
        NODE("Cast", ["narrow"], ["again"], to=TensorProto.FLOAT),
        NODE("Neg", ["again"], ["v"]),
    ]
    kinds = {"x": TensorProto.FLOAT, "w": TensorProto.BFLOAT16}
    gives = {"y": TensorProto.FLOAT, "z": TensorProto.BFLOAT16, "v": TensorProto.FLOAT}
    inputs, outputs = (
        [INFO(name, kind, ["batch", 5]) for name, kind in side.items()] for side in (kinds, gives)
    )
    return model_of(nodes, inputs, outputs, 19)


@pytest.mark.parametrize("flavour", ["vm", "standalone"])
def test_casts_of_bfloat16_beside_functions(flavour: str, tmp_path: Path) -> None:
    build(tmp_path / "out", around_functions(), options={**QUIET, "flavour": flavour})
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "passed"
    model = relaxd.load(tmp_path / "out")
    for batch in (1, 3, 8):
        x, w = np.random.default_rng(batch).standard_normal((2, batch, 5)).astype(np.float32)
        w = w.astype("bfloat16")
        got = model.run({"x": x, "w": w})
        np.testing.assert_allclose(got["y"], np.tanh(w.astype("f4")), atol=1e-6)
        part = (1 / (1 + np.exp(-x))).astype("bfloat16")
        np.testing.assert_array_equal(got["z"].astype("f4"), part.astype("f4"))
        bfloats = np.tanh(x).astype("bfloat16").astype("f4")
        np.testing.assert_array_equal(got["v"], -bfloats)


def feed(batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch)
    return {
        "x": random.standard_normal((batch, 5)).astype("float8_e4m3fn"),
        "w": random.integers(-8, 8, (5, 3)).astype("int4"),
    }


def test_a_build_is_verified_by_onnxruntime(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.full((3, 5), 0x38, np.uint8), w=np.ones((5, 3), np.int8))
    build(tmp_path / "out", small_types(), options=QUIET, samples=tmp_path / "mine.npz")
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith("onnxruntime")
    assert numerics["points"][0] == {"label": "sample", "dims": {"batch": 3}}
    assert [item["dtype"] for item in numerics["outputs"]] == ["float32", "float8_e5m2", "int4"]
    model = relaxd.load(tmp_path / "out")
    assert [spec.text for spec in model.inputs] == ["float8_e4m3fn[batch,5]", "int4[5,3]"]
    for batch in (1, 7):
        inputs = feed(batch)
        weight = inputs["w"].astype(np.float32) * np.array([0.5, 0.25, 2], np.float32)
        want = inputs["x"].astype(np.float32) @ weight
        got = model.run(inputs)
        np.testing.assert_allclose(got["y"], want, rtol=1e-5, atol=1e-5)
        assert got["z"].dtype.name == "float8_e5m2"
        np.testing.assert_allclose(got["z"].astype("f4"), want, rtol=0.13, atol=1e-4)
        steps = np.clip(np.rint(want / np.array([0.5, 0.25, 2], np.float32)), -8, 7)
        np.testing.assert_array_equal(got["v"].astype(np.int8), steps)


@pytest.mark.parametrize(
    ("target", "engine"),
    [
        (TensorProto.FLOAT8E8M0, "onnxruntime"),
        (TensorProto.FLOAT4E2M1, "onnx.reference"),
        (TensorProto.INT4, "onnx.reference"),
    ],
)
def test_who_verifies_a_cast(tmp_path: Path, target: int, engine: str) -> None:
    """ONNX Runtime has no 4-bit floats, and rounds what a cast to an integer truncates."""
    build(tmp_path / "out", cast(target), options=QUIET)
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith(engine)


def test_samples_beyond_the_type_fail(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((3, 5), np.uint8), w=np.full((5, 3), 9, np.int8))
    samples = tmp_path / "mine.npz"
    error = failing(tmp_path / "out", VerifyError, small_types(), options=QUIET, samples=samples)
    assert error.code == "verify.bad_samples"
    assert "values of int4 must be -8 to 7" in str(error)
