"""Division by constants that hold zeros: as IEEE has it for floats, refused for integers."""

import numpy as np
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, model_of

SPECIAL = np.array([[1, -1, 0, -0.0, np.nan, np.inf, -np.inf, 1e-40]])


@pytest.mark.parametrize("divisor", [0.0, -0.0])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_over_zero_are_infinite(dtype: str, divisor: float) -> None:
    constants = {
        "zero": np.array(divisor, dtype),
        "zeros": np.full((1, 1), divisor, dtype),
        "some": np.array([1, divisor, 2, divisor] * 2, dtype),
    }
    nodes = [helper.make_node("Div", ["x", name], [f"over_{name}"]) for name in constants]
    x = SPECIAL.astype(dtype)
    feeds = [{"x": x}, {"x": np.tile(x, (3, 1))}, {"x": x[:0]}]
    assert_like_onnxruntime(model_of(nodes, {"x": f"{dtype}[n,8]"}, constants), feeds)


@pytest.mark.parametrize("divisor", [np.array(0), np.array([3, 0])])
def test_integers_over_zero_are_refused(divisor: np.ndarray) -> None:
    model = model_of(
        [helper.make_node("Div", ["x", "c"], ["y"])], {"x": "int64[n,2]"}, {"c": divisor}
    )
    with pytest.raises(ImportFailed, match="divided by a constant zero"):
        build(model)
