"""Tensor programs of the importers among their neighbours."""

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper

from compiler.ir import import_model
from compiler.passes.manager import to_kernels
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, model_of, normal

pytestmark = pytest.mark.slow


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def chain() -> onnx.ModelProto:
    """Elementwise operators whose axes are expressions of dims, or dims that others multiply."""
    nodes = [
        node("Pad", "x pads", "a"),
        node("Round", "a", "b"),
        node("Mul", "b c", "d"),
        node("Sign", "d", "e"),
        node("Add", "e z", "f"),
        node("Round", "f", "y"),
    ]
    inputs = {"x": "float32[2,h,w]", "z": "float32[h,v]", "c": "float32[h,1]"}
    return model_of(nodes, inputs, {"pads": np.array([0, 0, 1, 0, 0, 0])}, outputs=["y"])


def test_programs_that_take_dims_as_numbers_are_fused() -> None:
    model = chain()
    imported = import_model(model, CompileRequest())
    kernels = to_kernels(imported.module, HOST, imported.ranges).functions
    names = [g.name_hint for g, f in kernels.items() if isinstance(f, tvm.tirx.PrimFunc)]
    rounding = [name for name in names if "round" in name]
    assert len(rounding) == 2
    assert all(name.startswith("fused") for name in rounding)
    feeds = [
        {"x": 3 * normal(2, h, w), "z": normal(h, w + 1, seed=3), "c": normal(h, 1, seed=4)}
        for h, w in ((1, 1), (3, 5), (8, 17))
    ]
    assert_like_onnxruntime(model, feeds)
