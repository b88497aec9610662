"""Verification draws what a model's inputs may hold: right models build, at every point."""

from pathlib import Path

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
    found = report(tmp_path / "out", "numerics.json")
    assert (found["verdict"], found["left_out"]) == ("passed", [])


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
    found = report(tmp_path / "out", "numerics.json")
    assert (found["verdict"], found["left_out"]) == ("passed", [])
    assert found["reference"].startswith("onnx.reference")
