"""Maxima, minima and limits of NaN, infinities and numbers, beside ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import assert_like_onnxruntime, model_of

ODD = (np.nan, np.inf, -np.inf, 1.5, -2.5, 0.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_nan_wins(dtype: str) -> None:
    """In either operand, both computed or one of them constant; the other of lower rank."""
    constants = {"c": np.array(1, dtype), "row": np.ones((1, 6), dtype)}
    nodes = [
        helper.make_node(kind, inputs, [f"{kind}{'_'.join(inputs)}"])
        for kind in ("Max", "Min")
        for inputs in (["x", "y"], ["y", "x"], ["x", "c"], ["row", "x"], ["x", "y", "c"])
    ]
    model = model_of(nodes, {"x": f"{dtype}[n,6]", "y": f"{dtype}[6]"}, constants)
    feeds = [
        {"x": np.stack([np.roll(ODD, by) for by in turns]).astype(dtype), "y": np.array(ODD, dtype)}
        for turns in ((1,), (0, 1, 2, 3, 4, 5))
    ]
    assert_like_onnxruntime(model, [*feeds, {"x": np.zeros((0, 6), dtype), "y": feeds[0]["y"]}])


def test_limits_keep_a_nan() -> None:
    # ONNX Runtime limits infinities by the greatest number where no limit is given.
    x = np.array([[np.nan, 8, -8, 1.5]], np.float32)
    constants = {"low": np.float32(-1), "high": np.float32(2)}
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["both"]),
        helper.make_node("Clip", ["x", "low"], ["least"]),
        helper.make_node("Clip", ["x", "", "high"], ["most"]),
        helper.make_node("HardSigmoid", ["x"], ["hard"]),
    ]
    feeds = [{"x": x}, {"x": np.tile(x, (3, 1))}]
    assert_like_onnxruntime(
        model_of(nodes, {"x": "float32[n,4]"}, {k: np.asarray(v) for k, v in constants.items()}),
        feeds,
    )
