"""Sums and means of squares are programs of their own, and a norm of rows is one kernel."""

from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from compiler.passes.fusion.sum_squares import SumSquares
from compiler.passes.manager import to_kernels
from compiler.tir.exprs import op_name
from tests.compiler.conftest import HOST, build_module

op = relax.op
ROWS = {"x": (("n", "m", 72), "float32")}
WEIGHT = np.random.default_rng(3).standard_normal(72).astype("float32")


def rms_norm(builder: Any, x: Any) -> Any:
    """RMS normalization as exporters write it."""
    mean = builder.emit(op.mean(op.multiply(x, x), [-1], keepdims=True))
    root = builder.emit(op.sqrt(op.add(mean, relax.const(1e-5))))
    return op.multiply(op.multiply(x, op.divide(relax.const(1.0), root)), relax.const(WEIGHT))


def operators(graph: Any, inputs: Any) -> list[str]:
    """Names of what the pass leaves, in order."""
    module = SumSquares().apply(build_module(graph, inputs))
    return [op_name(one.value) for block in module["main"].body.blocks for one in block.bindings]


@pytest.mark.parametrize(
    ("graph", "exact"),
    [
        (lambda b, x: op.sum(op.multiply(x, x), [1, 2]), lambda x: (x * x).sum((1, 2))),
        (lambda b, x: op.mean(op.multiply(x, x), [-1]), lambda x: (x * x).mean(-1)),
        (
            lambda b, x: op.mean(op.multiply(x, x), [-1], True),
            lambda x: (x * x).mean(-1)[..., None],
        ),
        (lambda b, x: op.mean(op.multiply(x, x)), lambda x: (x * x).mean()),
    ],
    ids=["sum", "mean", "mean kept", "mean of all"],
)
def test_squares_become_part_of_the_reduction(graph: Any, exact: Any, compile_graph: Any) -> None:
    assert operators(graph, ROWS)[-1] == "relax.call_tir"
    model = compile_graph(graph, ROWS)
    for n, m in [(1, 1), (2, 5), (3, 17)]:
        x = np.random.default_rng(n).standard_normal((n, m, 72)).astype("float32")
        np.testing.assert_allclose(model(x), exact(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("graph", "inputs"),
    [
        (
            lambda b, x, y: op.mean(op.multiply(x, y), [-1]),
            {**ROWS, "y": (("n", "m", 72), "float32")},
        ),
        (lambda b, x: op.max(op.multiply(x, x), [-1]), ROWS),
        (lambda b, x: op.mean(op.multiply(x, x), [-1]), {"x": (("n", 0), "float32")}),
    ],
    ids=["of two tensors", "maximum", "of nothing"],
)
def test_others_stay(graph: Any, inputs: Any) -> None:
    assert "relax.call_tir" not in operators(graph, inputs)


def test_a_norm_of_rows_is_one_kernel(compile_graph: Any) -> None:
    module = to_kernels(build_module(rms_norm, ROWS), HOST, {}, ())
    assert sum(isinstance(func, tirx.PrimFunc) for func in module.functions.values()) == 1
    model = compile_graph(rms_norm, ROWS)
    for n, m in [(1, 1), (2, 5), (3, 64)]:
        x = np.random.default_rng(m).standard_normal((n, m, 72)).astype("float32")
        want = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * WEIGHT
        np.testing.assert_allclose(model(x), want, rtol=1e-5, atol=1e-6)
