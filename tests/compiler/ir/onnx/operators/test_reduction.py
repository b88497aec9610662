"""ONNX reductions beside ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import assert_like_onnxruntime, model_of, normal

OPERATORS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("run_time", [False, True])
def test_no_elements(operator: str, run_time: bool) -> None:
    """What the specification leaves open, a mean of none, is ONNX Runtime's."""
    node = helper.make_node(operator, ["x", "axes"], ["y"])
    axes = np.array([1])
    inputs = {"x": "float32[n,m]", **({"axes": "int64[1]"} if run_time else {})}
    model = model_of([node], inputs, {} if run_time else {"axes": axes})
    feeds = [{"x": np.abs(normal(*shape))} for shape in ((2, 0), (0, 0), (0, 3), (2, 3))]
    given = {"axes": axes} if run_time else {}
    assert_like_onnxruntime(model, [{**feed, **given} for feed in feeds])
