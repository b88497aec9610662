"""Models of opset 6 beside ONNX Runtime, which is given them at opset 7."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.verify.reference.opset6 import at_opset_7
from tests.compiler.ir.onnx.running import build, model_of, normal, session_of

NODE = helper.make_node
CHANNELS = normal(3)


def agree(model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype("f4")
    wanted = session_of(at_opset_7(model)).run(None, {"x": x})
    for got, want in zip(build(model).run({"x": x}), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 3, 7])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("axis", [1, -3, None])
def test_broadcasting_along_an_axis(operator: str, axis: int | None, size: int) -> None:
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    second = CHANNELS if axis is not None else normal(4)
    node = NODE(operator, ["x", "c"], ["y"], broadcast=1, **attributes)
    agree(model_of([node], {"x": "float32[n,3,h,4]"}, {"c": second}, opset=6), (size, 3, 2, 4))


def test_what_only_training_needs() -> None:
    constants = {name: abs(normal(3, seed=i)) for i, name in enumerate("gbmv")}
    nodes = [
        NODE("BatchNormalization", ["x", *"gbmv"], ["n"], is_test=1),
        NODE("PRelu", ["n", "g"], ["p"]),
        NODE("Dropout", ["p"], ["d"], is_test=1, ratio=0.9),
        NODE("Clip", ["d"], ["y"], min=-0.5, max=1.5),
    ]
    model = model_of(nodes, {"x": "float32[n,3,h,h]"}, constants, opset=6, outputs=["y"])
    for size in (1, 5):
        agree(model, (2, 3, size, size))
