"""Extents that come of an input's values, and shapes of no elements: whatever they are, a run ends
with the answer or an error.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import relaxd
from relaxd.errors import ExecutionError
from tests.compiler.ir.onnx.running import model_of
from tests.support.hostile import FORMS, Refused, build_hostile, outcomes, run

pytestmark = pytest.mark.slow

SIZES = (1 << 31, 1 << 32, 1 << 40, 1 << 47, 1 << 61, 1 << 62, (1 << 63) - 1)
VALUES = (*SIZES, -1, -(1 << 31), -(1 << 32), -(1 << 62), -(1 << 63))


def _vector(*values: int) -> Any:
    return np.array(values, np.int64)


def _repeated() -> onnx.ModelProto:
    """Two outputs of extents that values decide, one of them an expression of values and dims."""
    nodes = [
        helper.make_node("ConstantOfShape", ["k"], ["filled"], name="filling"),
        helper.make_node("Tile", ["x", "k"], ["tiled"], name="tiling"),
    ]
    return model_of(nodes, {"x": "float32[n,3]", "k": "int64[2]"})


@pytest.mark.parametrize("form", FORMS)
def test_values_that_become_extents(form: str, tmp_path: Path) -> None:
    bundle = build_hostile(_repeated(), tmp_path / "b", form)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    got = run(bundle, {"x": x, "k": _vector(2, 3)})
    np.testing.assert_array_equal(got["tiled"], np.tile(x, (2, 3)))
    assert run(bundle, {"x": x, "k": _vector(0, 5)})["tiled"].shape == (0, 15)
    pairs = [(value, value) for value in VALUES]
    pairs += [(value, 1) for value in VALUES if value < 0 or value >= 1 << 47]
    pairs += [(0, value) for value in VALUES if value < 0 or value > 1 << 47]
    chosen = pairs if form != "wasm32-simd" else pairs[::4]  # each in an engine of its own
    for pair, outcome in zip(
        chosen,
        outcomes(bundle, [{"x": x, "k": _vector(*pair)} for pair in chosen]),
        strict=True,
    ):
        assert isinstance(outcome, Refused), pair
        assert re.search(r"memory|64 bits|not in \[0, 2\^40\]", str(outcome)), (pair, outcome)
        assert form == "vm" or re.search("filling|tiling", str(outcome)), outcome


@pytest.mark.parametrize("form", ["standalone", "vm"])
def test_matmuls_by_the_extents_of_empty_inputs(form: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": "float32[n,k]", "w": "float32[k,m]"})
    bundle = build_hostile(model, tmp_path / "b", form)
    ones = run(bundle, {"x": np.ones((2, 3), "float32"), "w": np.ones((3, 2), "float32")})
    np.testing.assert_array_equal(ones["y"], np.full((2, 2), 3, "float32"))
    feeds = [
        {"x": np.empty((size, 0), "float32"), "w": np.empty((0, size), "float32")}
        for size in (1 << 31, 1 << 32, 1 << 33, 1 << 40)
    ]
    # 2^45 bytes, which an address may reach and no machine has.
    honest = {"x": np.empty((1 << 31, 0), "float32"), "w": np.empty((0, 1 << 12), "float32")}
    for outcome in outcomes(bundle, [*feeds, honest]):
        assert isinstance(outcome, Refused)
        assert "memory" in str(outcome)
    with pytest.raises(ExecutionError, match="memory"):
        relaxd.load(bundle).prepared(honest)()


def test_a_dim_beyond_what_extents_may_be(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": "float32[n,k]"})
    bundle = build_hostile(model, tmp_path / "b", "standalone")
    assert run(bundle, {"x": np.empty((1 << 40, 0), "float32")})["y"].shape == (1 << 40, 0)
    with pytest.raises(Refused, match="n = 1099511627777, it must be 0 to 1099511627776"):
        run(bundle, {"x": np.empty(((1 << 40) + 1, 0), "float32")})
