"""Functions between quantized tensors, as ONNX Runtime's quantizer leaves them: every value goes
through integers and back.
"""

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler import targets
from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.manager import lower
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import assembly
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime

FUNCTIONS = ("Sigmoid", "Tanh", "Erf", "Exp")


def pair(name: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    """Nodes that quantize `name` and make floats of it again."""
    return [
        helper.make_node("QuantizeLinear", [name, scale, zero], [f"{name}_integers"]),
        helper.make_node("DequantizeLinear", [f"{name}_integers", scale, zero], [f"{name}_floats"]),
    ]


def between(function: str) -> onnx.ModelProto:
    constants = {
        "in": np.float32(0.05),
        "out": np.float32(1 / 64),
        "middle": np.uint8(128),
        "low": np.uint8(64),
    }
    call = helper.make_node(function, ["x_floats"], ["y"])
    nodes = [*pair("x", "in", "middle"), call, *pair("y", "out", "low")]
    return model_of(nodes, {"x": "float32[n,16,h,w]"}, constants, outputs=["y_floats"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_are_as_in_onnxruntime(function: str) -> None:
    feeds = [{"x": normal(*shape)} for shape in ((1, 16, 1, 1), (2, 16, 7, 5), (3, 16, 33, 31))]
    # A value halfway between two integers may be rounded to either: one step of the scale.
    assert_like_onnxruntime(between(function), feeds, tolerance=1 / 63)


def test_quantizing_is_done_in_vectors() -> None:
    target = targets.resolve("x86-64-v3")
    imported = import_model(between("Sigmoid"), CompileRequest.of())
    executable = generate(lower(imported.module, target, imported.ranges), target)
    assert "vroundps" in assembly(executable)
