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
    """A mean of none, which the specification leaves open, is ONNX Runtime's."""
    node = helper.make_node(operator, ["x", "axes"], ["y"])
    axes = np.array([1])
    inputs = {"x": "float32[n,m]", **({"axes": "int64[1]"} if run_time else {})}
    model = model_of([node], inputs, {} if run_time else {"axes": axes})
    feeds = [{"x": np.abs(normal(*shape))} for shape in ((2, 0), (0, 0), (0, 3), (2, 3))]
    more = {"axes": axes} if run_time else {}
    assert_like_onnxruntime(model, [{**feed, **more} for feed in feeds])


@pytest.mark.parametrize("run_time", [False, True])
@pytest.mark.parametrize(
    "attributes", [{"keepdims": 0}, {"keepdims": 1}, {"noop_with_empty_axes": 1}]
)
@pytest.mark.parametrize("axes", [[1], [0], [0, 1], []])
def test_the_log_of_a_sum_of_exponentials_of_rows_far_apart(
    axes: list[int], attributes: dict[str, int], run_time: bool
) -> None:
    if run_time and not axes and not attributes.get("keepdims", 1):
        pytest.skip("the rank of the result is open")
    node = helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"], **attributes)
    inputs = {"x": "float32[n,m]", **({"axes": f"int64[{len(axes)}]"} if run_time else {})}
    known = {"axes": np.array(axes, np.int64)}
    model = model_of([node], inputs, {} if run_time else known)
    far = np.array([[0, 1, -2], [-200, -201, -203], [300, 299, 280]], np.float32)
    odd = np.array([[0, 2], [np.inf, 1], [-np.inf, -np.inf]], np.float32)
    more = known if run_time else {}
    assert_like_onnxruntime(model, [{"x": x, **more} for x in (far, far[:, :1], far[:1], odd)])
