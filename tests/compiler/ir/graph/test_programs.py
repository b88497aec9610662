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


def kernels_of(model: onnx.ModelProto) -> list[str]:
    """The names of its kernels."""
    imported = import_model(model, CompileRequest())
    kernels = to_kernels(imported.module, HOST, imported.ranges).functions
    return [g.name_hint for g, f in kernels.items() if isinstance(f, tvm.tirx.PrimFunc)]


def test_programs_that_take_dims_as_numbers_are_fused() -> None:
    model = chain()
    kernels = [name for name in kernels_of(model) if "round" in name]
    assert len(kernels) == 1
    assert all(name.startswith("fused") for name in kernels)
    feeds = [
        {"x": 3 * normal(2, h, w), "z": normal(h, w + 1, seed=3), "c": normal(h, 1, seed=4)}
        for h, w in ((1, 1), (3, 5), (8, 17))
    ]
    assert_like_onnxruntime(model, feeds)


def positions() -> onnx.ModelProto:
    """Positions behind those of a cache, whose length no axis of a result has."""
    nodes = [
        node("Shape", "x", "size", start=1, end=2),
        node("Shape", "cache", "past", start=0, end=1),
        node("Squeeze", "size", "n"),
        node("Squeeze", "past", "m"),
        node("Range", "zero n one", "range"),
        node("Add", "range m", "y"),
    ]
    inputs = {"x": "float32[b,n]", "cache": "float32[m]"}
    constants = {"zero": np.array(0), "one": np.array(1)}
    return model_of(nodes, inputs, constants, outputs=["y"])


def test_a_dim_that_no_shape_has_keeps_its_program_apart() -> None:
    assert "symbols" in kernels_of(positions())
    feeds = [{"x": normal(2, n), "cache": normal(m)} for n, m in ((1, 1), (5, 3), (2, 9))]
    assert_like_onnxruntime(positions(), feeds)
