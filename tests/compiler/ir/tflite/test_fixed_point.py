"""Fixed-point factors: numpy, ONNX's operators and kernels give the same integers, to the bit."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.api import compile_model
from compiler.ir.tflite.fixed_point import multiply, quantize_multiplier, round_away
from compiler.ir.tflite.functions import DOMAIN, FUNCTIONS
from relaxd import load

EDGES = [0, 1, -1, 2, -2, 3, 127, -128, 1 << 20, -(1 << 20), (1 << 30) - 1, -(1 << 30)]
PLAIN = [0.0, 0.2499999, 0.125, 0.1, 1 / 3 / 64, 0.0007, 2.0**-18, 2.0**-31, 2.0**-32 * 1.7]
"""Factors that kernels scale by in 32 bits."""
FACTORS = [0.0, 0.25, 0.5, 1 / 3, 0.0007, 0.9999999, 1.0, 1.5, 3.7, 2.0**-33]


def reference(value: int, multiplier: int, exponent: int) -> int:
    """The definition: rounded at 31 bits halves up, then at the exponent halves away from 0."""
    scaled_up = Fraction(value * (1 << max(exponent, 0)) * multiplier, 1 << 31)
    high = (2 * scaled_up + 1).__floor__() // 2 if scaled_up.denominator > 1 else int(scaled_up)
    scaled = Fraction(high, 1 << max(-exponent, 0))
    size = (2 * abs(scaled) + 1) / 2
    return int(size.__floor__()) * (1 if scaled >= 0 else -1)


@pytest.mark.parametrize("factor", FACTORS)
def test_numpy_follows_the_definition(factor: float) -> None:
    multiplier, exponent = quantize_multiplier(factor)
    values = np.array([*EDGES, *np.random.default_rng(0).integers(-(1 << 24), 1 << 24, 500)])
    wanted = [reference(int(value), multiplier, exponent) for value in values]
    assert multiply(values, multiplier, exponent).tolist() == wanted


def test_halves_go_away_from_zero_and_what_is_below_stays() -> None:
    values = np.array([0.5, -0.5, 1.5, 0.49999997, -2.5, 8388609.0], np.float32)
    assert round_away(values).tolist() == [1, -1, 2, 0, -3, 8388609]


def model(function: str, multipliers: np.ndarray, exponents: np.ndarray) -> onnx.ModelProto:
    constants = {
        "multiplier": multipliers.astype(np.int32),
        "exponent": exponents.astype(np.int32),
        "zero": np.array(-3, np.int8),
        "low": np.array(-100, np.int32),
        "high": np.array(127, np.int32),
    }
    node = helper.make_node(function, ["x", *constants], ["y"], domain=DOMAIN)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, ["n", len(multipliers)])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, ["n", len(multipliers)])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=10, functions=[FUNCTIONS[function]]
    )


def run_both(function: str, factors: list[float], x: np.ndarray, out: Path) -> np.ndarray:
    """Run a kernel, which gives what ONNX Runtime gives."""
    pairs = [quantize_multiplier(factor) for factor in factors]
    multipliers, exponents = (np.array(column) for column in zip(*pairs, strict=True))
    proto = model(function, multipliers, exponents)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    compile_model(proto, output=out, dims={"n": (1, 64)}, options={"profile": False})
    for rows in (1, 7, len(x)):
        result = load(out).run({"x": x[:rows]})["y"]
        np.testing.assert_array_equal(result, session.run(None, {"x": x[:rows]})[0])
    return result


def draw(columns: int) -> np.ndarray:
    x = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (64, columns)).astype(np.int32)
    x[: len(EDGES)] = np.array(EDGES, np.int32)[:, None]
    x[-40:] %= 600
    return x


LIMITS = [(1 << 31) - 1, -(1 << 31), -(1 << 31) + 1]


@pytest.mark.parametrize("factors", [FACTORS, PLAIN], ids=["factors", "plain"])
def test_kernels_and_onnx_runtime_give_what_numpy_gives(
    factors: list[float], tmp_path: Path
) -> None:
    pairs = [quantize_multiplier(factor) for factor in factors]
    x = draw(len(pairs))
    if factors is PLAIN:
        x[20:23] = np.array(LIMITS, np.int32)[:, None]
        # Halves of 1/8, and what is next to them.
        x[23:47, PLAIN.index(0.125)] = np.arange(-12, 12)
    scaled = np.array(
        [[reference(int(v), *p) for v, p in zip(row, pairs, strict=True)] for row in x]
    )
    wanted = np.clip(scaled - 3, -100, 127).astype(np.int8)
    result = run_both("Requantize", factors, x, tmp_path / "out")
    np.testing.assert_array_equal(result, wanted)


def test_kernels_and_onnx_runtime_round_once_as_numpy_does(tmp_path: Path) -> None:
    pairs = [quantize_multiplier(factor) for factor in FACTORS]
    x = draw(len(pairs))
    scaled = [
        [int(v) * m + (1 << 30 - e) >> 31 - e for v, (m, e) in zip(row, pairs, strict=True)]
        for row in x
    ]
    wanted = np.clip(np.array(scaled) - 3, -100, 127).astype(np.int8)
    result = run_both("RequantizeOnce", FACTORS, x, tmp_path / "out")
    np.testing.assert_array_equal(result, wanted)


def test_factors_beyond_all_elements_saturate(tmp_path: Path) -> None:
    x = np.array([[1], [-1], [0], *[[limit] for limit in LIMITS]], np.int32)
    result = run_both("Requantize", [2.0**30 * 1.5], x, tmp_path / "out")
    assert result[:, 0].tolist() == [127, -100, -3, 127, -100, -100]
