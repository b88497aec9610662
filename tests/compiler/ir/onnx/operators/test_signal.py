"""Fourier transforms, windows, filter banks and ranges against numpy."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

NODE = helper.make_node


def as_pairs(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], -1).astype(np.float32)


@pytest.mark.parametrize("inverse", [0, 1])
def test_dft_of_any_length_along_a_run_time_axis(inverse: int) -> None:
    node = NODE("DFT", ["x", "length", "axis"], ["y"], inverse=inverse)
    built = build(
        model_of([node], {"x": "float32[a,b,2]", "length": "int64[]", "axis": "int64[]"}, opset=20)
    )
    for a, b, length, axis in ((3, 7, 7, 1), (4, 5, 9, 0), (2, 6, 4, -2), (1, 1, 1, 0)):
        x = normal(a, b, 2)
        transform = np.fft.ifft if inverse else np.fft.fft
        wanted = as_pairs(transform(x[..., 0] + 1j * x[..., 1], length, 1 if axis == -2 else axis))
        assert_close(
            built.run({"x": x, "length": np.array(length), "axis": np.array(axis)}), [wanted], ["y"]
        )


def test_one_sided_there_and_back() -> None:
    nodes = [
        NODE("DFT", ["x", "", "axis"], ["spectrum"], onesided=1),
        NODE("DFT", ["spectrum", "length", "axis"], ["back"], onesided=1, inverse=1),
    ]
    model = model_of(
        nodes, {"x": "float32[n,t,1]", "length": "int64[]"}, {"axis": np.array(1)}, opset=20
    )
    built = build(model)
    for count in (8, 13):
        x = normal(2, count, 1)
        assert_close(
            built.run({"x": x, "length": np.array(count)}),
            [as_pairs(np.fft.rfft(x[..., 0], axis=1)), x],
            ["spectrum", "back"],
        )


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(onesided: int) -> None:
    node = NODE("STFT", ["x", "step", "window"], ["y"], onesided=onesided)
    model = model_of(
        [node], {"x": "float32[n,t,1]", "step": "int64[]", "window": "float32[w]"}, opset=17
    )
    feeds = [
        {"x": normal(n, t, 1), "step": np.array(step), "window": normal(w)}
        for n, t, step, w in ((1, 32, 8, 16), (2, 50, 3, 7), (1, 5, 1, 5))
    ]
    built = build(model)
    for feed in feeds:
        assert_close(built.run(feed), ReferenceEvaluator(model).run(None, feed), ["y"])


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op: str, periodic: int) -> None:
    built = build(
        model := model_of([NODE(op, ["n"], ["y"], periodic=periodic)], {"n": "int64[]"}, opset=17)
    )
    for count in (2, 13, 0):
        feed = {"n": np.array(count)}
        assert_close(built.run(feed), ReferenceEvaluator(model).run(None, feed), ["y"])


def test_mel_filters() -> None:
    inputs = {
        "bins": "int64[]",
        "length": "int64[]",
        "rate": "int64[]",
        "low": "float32[]",
        "high": "float32[]",
    }
    model = model_of([NODE("MelWeightMatrix", list(inputs), ["y"])], inputs, opset=17)
    built = build(model)
    for bins, length, rate, low, high in ((8, 16, 8192, 0, 4096), (40, 400, 16000, 20, 7600)):
        numbers = {"bins": np.array(bins), "length": np.array(length), "rate": np.array(rate)}
        feed = numbers | {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}
        assert_close(built.run(feed), ReferenceEvaluator(model).run(None, feed), ["y"])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_ranges_of_run_time_bounds(dtype: str) -> None:
    model = model_of([NODE("Range", ["a", "b", "c"], ["y"])], dict.fromkeys("abc", f"{dtype}[]"))
    bounds = [(0, 10, 3), (5, -4, -2), (3, 3, 1), (4, 1, 1)]
    assert_like_onnxruntime(
        model,
        [{name: np.array(v, dtype) for name, v in zip("abc", row, strict=True)} for row in bounds],
    )
