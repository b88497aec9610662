"""A negated comparison with NaN is true, alone and behind other functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

op = relax.op
ODD = np.array([np.nan, -np.inf, np.inf, -1.5, 0.0, 2.0, 3e38], "float32")
ZERO = relax.const(np.float32(0))


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (lambda x: op.logical_not(op.less(x, ZERO)), lambda x: ~(x < 0)),
        (lambda x: op.logical_not(op.equal(x, ZERO)), lambda x: x != 0),
        (
            lambda x: op.logical_not(op.logical_or(op.less(x, ZERO), op.greater(x, ZERO))),
            lambda x: ~((x < 0) | (x > 0)),
        ),
        (lambda x: op.logical_not(op.logical_not(op.less(x, ZERO))), lambda x: x < 0),
    ],
    ids=["less", "equal", "either", "twice"],
)
def test_not(
    compile_graph: Any, function: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    model = compile_graph(
        lambda builder, x: builder.emit(function(x)), {"x": (("n", 7), "float32")}
    )
    for rows in (0, 1, 2, 17):
        x = np.tile(ODD, (rows, 1))
        np.testing.assert_array_equal(model(x), reference(x))
