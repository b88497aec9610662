"""A NaN goes through relu, alone and behind other functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.support.rounding import assert_matmul_close

op = relax.op
ODD = np.array([np.nan, -np.inf, np.inf, -1.5, 0.0, 2.0, 3e38], "float32")


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (op.nn.relu, lambda x: np.maximum(x, 0)),
        (lambda x: op.nn.relu(op.multiply(x, x)), np.square),
    ],
    ids=["alone", "fused"],
)
def test_relu(
    compile_graph: Any, function: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    model = compile_graph(
        lambda builder, x: builder.emit(function(x)), {"x": (("n", 7), "float32")}
    )
    for rows in (0, 1, 2, 17):
        x = np.tile(ODD, (rows, 1))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(model(x), reference(x))


def test_relu_behind_a_matmul(compile_graph: Any, draw: np.random.Generator) -> None:
    weight = draw.standard_normal((7, 33)).astype("float32")
    model = compile_graph(
        lambda builder, x: builder.emit(op.nn.relu(op.matmul(x, relax.const(weight)))),
        {"x": (("n", 7), "float32")},
    )
    for rows in (1, 5, 16):
        x = draw.standard_normal((rows, 7)).astype("float32")
        x[rows // 2] = np.nan
        assert_matmul_close(model(x), x, weight, relu=True)
