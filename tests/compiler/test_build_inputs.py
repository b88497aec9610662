"""Verification draws what a model's inputs may hold: right models build, at every point."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.compiler.building import build, report
from tests.compiler.indexed_models import MODELS
from tests.compiler.ir.onnx.running import model_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", MODELS)
def test_legal_values_are_drawn_at_every_point(name: str, tmp_path: Path) -> None:
    model, dims = MODELS[name]
    build(tmp_path / "out", model, dims=dims, options={"profile": False})
    numerics = report(tmp_path / "out", "numerics.json")
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])


def test_points_of_a_condition_beyond_its_axis_are_left_out(tmp_path: Path) -> None:
    """ONNX Runtime ignores the rest of the condition, which the specification does not allow."""
    node = helper.make_node("Compress", ["x", "keep"], ["y"], axis=0)
    model = model_of([node], {"x": "float32[n,4]", "keep": "bool[m]"})
    dims = {"n": (1, 12), "m": (1, 9)}
    build(tmp_path / "out", model, dims=dims, options={"profile": False})
    numerics = report(tmp_path / "out", "numerics.json")
    beyond = {"max-m", "random-2"} & {item["label"] for item in numerics["left_out"]}
    assert (numerics["verdict"], beyond) == ("passed", {"max-m"})
    assert all("elements" in item["reason"] for item in numerics["left_out"])


def forgetful_lstm() -> onnx.ModelProto:
    """A form that ONNX Runtime refuses."""
    random = np.random.default_rng(0)
    node = helper.make_node(
        "LSTM",
        ["x", "w", "r", "bias"],
        ["y", "yh"],
        hidden_size=5,
        layout=1,
        input_forget=1,
        clip=0.8,
        activations=["HardSigmoid", "Softsign", "Elu"],
    )
    shapes = {"w": (1, 20, 3), "r": (1, 20, 5), "bias": (1, 40)}
    constants = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    return model_of([node], {"x": "float32[b,t,3]"}, constants, 14)


def test_forms_that_onnxruntime_lacks_are_judged_by_the_stand_in(tmp_path: Path) -> None:
    dims = {"b": (1, 6), "t": (1, 19)}
    build(tmp_path / "out", forgetful_lstm(), dims=dims, options={"profile": False})
    numerics = report(tmp_path / "out", "numerics.json")
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
    assert numerics["reference"].startswith("onnx.reference")


def ink_detector() -> onnx.ModelProto:
    """A sigmoid that is 0 on noise, whose colours and neighbours average out."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("AveragePool", ["grey"], ["near"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["near", "slope"], ["steep"]),
        helper.make_node("Add", ["steep", "offset"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["y"]),
    ]
    constants = {"slope": np.array([-60], np.float32), "offset": np.array([-75], np.float32)}
    return model_of(nodes, {"x": "float32[n,3,h,w]"}, constants, 17, ["y"])


def test_pictures_are_drawn_on_which_outputs_vary(tmp_path: Path) -> None:
    dims = {"n": (1, 2), "h": (16, 128), "w": (16, 128)}
    build(tmp_path / "out", ink_detector(), dims=dims, options={"profile": False})
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["inputs"]["distribution"] in ("pages", "smooth")
    assert numerics["inputs"]["spread"]["noise"] < 1e-4
    assert numerics["outputs"][0]["range"] > 0.9


def loud_alone() -> onnx.ModelProto:
    """A sigmoid that only inputs of about 25 let out of zero."""
    nodes = [
        helper.make_node("Add", ["x", "offset"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["y"]),
    ]
    return model_of(
        nodes, {"x": "float32[n,8]"}, {"offset": np.array([-25], np.float32)}, 17, ["y"]
    )


def test_where_noise_proves_nothing_louder_noise_is_tried(tmp_path: Path) -> None:
    build(tmp_path / "out", loud_alone(), dims={"n": (1, 64)}, options={"profile": False})
    numerics = report(tmp_path / "out", "numerics.json")
    assert (numerics["verdict"], numerics["inputs"]["distribution"]) == ("passed", "loud")
    assert numerics["outputs"][0]["range"] > 0.1


def test_inputs_without_pictures_are_noise(tmp_path: Path) -> None:
    build(tmp_path / "out", options={"profile": False})
    inputs = report(tmp_path / "out", "numerics.json")["inputs"]
    assert inputs == {"distribution": "noise", "spread": {}}


@pytest.mark.parametrize(
    "window",
    [
        {"auto_pad": "SAME_LOWER", "dilations": [2, 2]},
        {"auto_pad": "SAME_UPPER", "dilations": [1, 3], "strides": [2, 2]},
    ],
    ids=str,
)
def test_pooling_is_judged_by_the_specification(window: dict[str, Any], tmp_path: Path) -> None:
    """ONNX Runtime gives another shape, and so did onnx's own operators."""
    nodes = [
        helper.make_node(op, ["x"], [op], kernel_shape=[3, 3], **window)
        for op in ("MaxPool", "AveragePool", "LpPool")
    ]
    model = model_of(nodes, {"x": "float32[n,2,h,9]"}, None, 22)
    dims = {"n": (1, 2), "h": (7, 13)}
    build(tmp_path / "out", model, dims=dims, options={"profile": False})
    numerics = report(tmp_path / "out", "numerics.json")
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
