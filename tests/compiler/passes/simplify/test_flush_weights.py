"""Subnormal weights become zeros where products read them, and stay elsewhere."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.ir.arrays import values_of
from compiler.passes.simplify.flush_weights import FlushWeights
from tests.compiler.conftest import build_module
from tests.support.rounding import assert_matmul_close

op = relax.op
TINY = np.float32(1e-40)
WEIGHT = np.random.default_rng(3).standard_normal((8, 8)).astype("float32")
WEIGHT[:, ::2] = TINY
WEIGHT[3, 5] = -TINY
WEIGHT[4, 4] = np.finfo(np.float32).tiny
BIAS = np.where(np.arange(8) % 3 == 0, TINY, np.float32(0.5)).astype("float32")


def constants(graph: Any) -> list[np.ndarray]:
    """The constants that the pass leaves, in the order of their calls."""
    module = FlushWeights().apply(build_module(graph, {"x": (("n", 8), "float32")}))
    values: list[np.ndarray] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            values.append(values_of(node))

    relax.analysis.post_order_visit(module["main"], visit)
    return values


def without_subnormals(array: np.ndarray) -> np.ndarray:
    return np.where(np.abs(array) < np.finfo(np.float32).tiny, np.float32(0), array)


def test_weights_scales_and_biases_of_matmuls() -> None:
    def graph(b: Any, x: Any) -> Any:
        matmul = b.emit(op.matmul(x, relax.const(WEIGHT)))
        scaled = b.emit(op.multiply(matmul, relax.const(BIAS)))
        return op.add(relax.const(BIAS), scaled)

    weight, *vectors = constants(graph)
    np.testing.assert_array_equal(weight, without_subnormals(WEIGHT))
    assert np.signbit(weight[3, 5])
    assert weight[4, 4] == WEIGHT[4, 4]
    assert len(vectors) == 2
    for vector in vectors:
        np.testing.assert_array_equal(vector, without_subnormals(BIAS))


def test_a_chain_longer_than_pythons_stack() -> None:
    def graph(b: Any, x: Any) -> Any:
        value = b.emit(op.matmul(x, relax.const(WEIGHT)))
        for _ in range(3000):
            value = b.emit(op.add(value, relax.const(BIAS)))
        return value

    assert not any(np.any(values == TINY) for values in constants(graph))


def test_weights_of_convolutions() -> None:
    def graph(b: Any, x: Any) -> Any:
        image = b.emit(op.reshape(x, (x.ty.shape.values[0], 8, 1, 1)))
        return op.nn.conv2d(image, relax.const(WEIGHT.reshape(8, 8, 1, 1)))

    (weight,) = constants(graph)
    np.testing.assert_array_equal(weight[..., 0, 0], without_subnormals(WEIGHT))


@pytest.mark.parametrize(
    "graph",
    [
        lambda b, x: op.log(op.add(x, relax.const(BIAS))),
        lambda b, x: op.divide(op.matmul(x, x), relax.const(BIAS)),
        lambda b, x: op.add(op.tanh(op.matmul(x, op.permute_dims(x))), relax.const(TINY)),
        lambda b, x: op.maximum(op.matmul(x, op.permute_dims(x)), relax.const(TINY)),
    ],
)
def test_other_constants_stay(graph: Any) -> None:
    module = build_module(graph, {"x": ((8, 8), "float32")})
    tvm.ir.assert_structural_equal(FlushWeights().apply(module), module, map_free_vars=True)


def test_results_are_those_of_the_weights_as_they_were(compile_graph: Any) -> None:
    model = compile_graph(
        lambda b, x: op.add(op.matmul(x, relax.const(WEIGHT)), relax.const(BIAS)),
        {"x": (("n", 8), "float32")},
    )
    for n in (1, 5, 17):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype("float32")
        assert_matmul_close(model(x), x, WEIGHT, BIAS)
