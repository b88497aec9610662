"""Perturbed inputs and weights: floats move by some ulp, and what shapes follow from does not."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compiler.verify.reference.perturbation import SCALE, perturb, perturb_inputs, perturb_weights

MODEL = """<ir_version: 9, opset_import: ["": 17]> g (float[n, 32] x) => (float[n, 32] y)
<float[32] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4,
5, 6, 7, 8}, float[2] few = {1, 2}, int64[1] k = {32}>
{ a = Mul(x, w) y = Identity(a) }"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats_move_by_about_an_ulp(dtype: str) -> None:
    array = np.linspace(1, 2, 4096).astype(dtype)
    moved = perturb(array, np.random.default_rng(0))
    assert moved.dtype == array.dtype
    apart = np.abs(moved.astype("f8") / array.astype("f8") - 1)
    eps = float(ml_dtypes.finfo(array.dtype).eps)
    assert (apart > 0).mean() > 0.3
    assert apart.max() < 8 * max(SCALE, eps)


def test_zeros_infinities_and_other_dtypes_stay() -> None:
    odd = np.array([0, np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(perturb(odd, np.random.default_rng(0)), odd)
    ids = np.arange(4)
    assert perturb(ids, np.random.default_rng(0)) is ids


def test_seeds_differ_and_repeat() -> None:
    inputs: dict[str, Any] = {"x": np.ones(9, np.float32), "ids": np.arange(3)}
    first, again, third = (perturb_inputs(inputs, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], third["x"])


def test_large_constants_move_and_small_ones_do_not() -> None:
    model = onnx.parser.parse_model(MODEL)
    before = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    perturb_weights(model, 0)
    after = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert not np.array_equal(after["w"], before["w"])
    np.testing.assert_allclose(after["w"], before["w"], rtol=8 * SCALE)
    for name in ("few", "k"):
        np.testing.assert_array_equal(after[name], before[name])
