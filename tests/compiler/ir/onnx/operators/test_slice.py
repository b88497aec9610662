"""Slices of axes of unknown extent, whose ends ONNX recommends to write as INT_MAX and INT_MIN."""

import numpy as np
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import assert_like_onnxruntime, model_of, normal


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("first", "last", "step", "extent"),
    [
        (0, "max", 2, "(w + 1) // 2"),
        (1, "max", 1, None),
        (-1, "min", -1, "w"),
        ("max", 0, -2, None),
    ],
)
def test_the_end_is_that_of_the_axis(
    first: int | str, last: int | str, step: int, extent: str | None, bits: int
) -> None:
    named: dict[int | str, int] = {"max": 2 ** (bits - 1) - 1, "min": -(2 ** (bits - 1))}
    constants = {
        name: np.array([named.get(value, value)], "int64")
        for name, value in {"from": first, "to": last, "axes": 1, "steps": step}.items()
    }
    model = model_of(
        [helper.make_node("Slice", ["x", *constants], ["y"])], {"x": "float32[n,w]"}, constants
    )
    feeds = [{"x": normal(*shape)} for shape in ((1, 1), (2, 5), (3, 8), (2, 0))]
    built = assert_like_onnxruntime(model, feeds)
    text = str(built.imported.outputs[0].shape[1])
    assert text == extent if extent else str(2**31 - 1) not in text
