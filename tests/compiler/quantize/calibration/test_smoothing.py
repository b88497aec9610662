"""Scales of channels, and builds that use them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler import compile_model
from compiler.quantize.calibration.smoothing import find_scales
from relaxd.contract.options import Calibration, CompileOptions, Precision, PrecisionOver
from relaxd.errors import DeclarationError
from relaxd.loader.report import report_of
from tests.compiler.building import report
from tests.compiler.ir.onnx.running import model_of, normal

SMOOTH = CompileOptions(profile=False, precision=Precision.INT8, calibration=Calibration.SMOOTH)


def outlying(rows: int, depth: int, seed: int = 0) -> np.ndarray:
    """Rows with two channels that are far greater than the others."""
    values = normal(rows, depth, seed=seed)
    values[:, 5] *= 60
    values[:, depth - 2] *= 25
    return values


def test_channels_of_unlike_size_become_alike() -> None:
    rows, weights = outlying(200, 64), [normal(64, 24, seed=1), normal(64, 40, seed=2)]
    smoothing = find_scales(rows.reshape(10, 20, 64), weights)
    assert smoothing is not None
    assert smoothing.after < 0.4 * smoothing.before
    sizes = np.abs(rows / smoothing.scales).max(0)
    assert sizes.max() / sizes.min() < 0.3 * np.abs(rows).max() / np.abs(rows).max(0).min()
    same = (rows / smoothing.scales) @ (weights[0] * smoothing.scales[:, None])
    np.testing.assert_allclose(same, rows @ weights[0], rtol=1e-3, atol=1e-3)


def test_what_gains_nothing_is_left() -> None:
    even = np.sign(normal(100, 64))
    assert find_scales(even, [np.sign(normal(64, 32, seed=1))]) is None
    assert find_scales(np.zeros((9, 64), np.float32), [normal(64, 32)]) is None
    assert find_scales(np.full((9, 64), np.nan, np.float32), [normal(64, 32)]) is None


def test_a_channel_that_the_samples_do_not_reach_stays_bounded() -> None:
    rows = outlying(200, 64)
    rows[:, 9] = 0
    smoothing = find_scales(rows, [normal(64, 24, seed=1)])
    assert smoothing is not None
    assert smoothing.scales.max() / smoothing.scales.min() < 1e4


def classifier() -> onnx.ModelProto:
    constants = {"u": normal(64, 48, seed=1) / 8, "v": normal(48, 32, seed=2) / 7}
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["y"], name="second"),
    ]
    return model_of(nodes, {"x": "float32[n,64]"}, constants, outputs=["y"])


@pytest.mark.slow
def test_a_build_rounds_less(tmp_path: Path) -> None:
    """Other points than the sample's take its rows, so that their channels are alike."""
    samples, errors = tmp_path / "samples.npz", {}
    np.savez(samples, x=outlying(40, 64) / 8)
    for calibration in (Calibration.NONE, Calibration.SMOOTH):
        output, options = tmp_path / calibration, replace(SMOOTH, calibration=calibration)
        compile_model(
            classifier(), output=output, dims={"n": (1, 50)}, samples=samples, options=options
        )
        numerics = report(output, "numerics.json")
        assert numerics["verdict"] == "passed"
        errors[calibration] = numerics["precision"]
    smooth = errors[Calibration.SMOOTH]
    assert smooth["error"] < 0.7 * errors[Calibration.NONE]["error"]
    assert smooth["error"] == pytest.approx(smooth["expected"], rel=0.02)
    assert smooth["smoothed"][0]["value"] == "x"
    assert smooth["smoothed"][0]["after"] < 0.5 * smooth["smoothed"][0]["before"]
    assert "smoothed" not in errors[Calibration.NONE]
    shown = report_of(tmp_path / Calibration.SMOOTH).numerics.precision
    assert shown is not None
    assert shown.smoothed[0].value == "x"
    # Layers are chosen by the error that is left once channels are scaled.
    within = (smooth["error"] + errors[Calibration.NONE]["error"]) / 2
    both = replace(SMOOTH, precision_error=within, precision_over=PrecisionOver.KEEP)
    manifest = compile_model(
        classifier(),
        output=tmp_path / "both",
        dims={"n": (1, 50)},
        samples=samples,
        options=both,
    )
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ("first", "second")


def test_samples_are_wanted(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="samples") as caught:
        compile_model(classifier(), output=tmp_path / "out", options=SMOOTH)
    assert caught.value.field == "samples"
