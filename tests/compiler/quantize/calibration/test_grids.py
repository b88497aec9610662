"""Grids that samples give values, and builds that use them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler import compile_model
from compiler.quantize.calibration.grids import of_images, of_rows, round_to_grid
from compiler.quantize.onnx.matmuls import Grid
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from relaxd.contract.options import Calibration, CompileOptions, Precision, PrecisionOver
from relaxd.loader.report import report_of
from tests.compiler.building import report
from tests.compiler.ir.onnx.running import model_of, normal, session_of
from tests.support.geometries import has_int8

STATIC = CompileOptions(profile=False, precision=Precision.INT8, calibration=Calibration.STATIC)


def test_a_grid_holds_zero_and_covers_the_range() -> None:
    values = np.abs(normal(4, 8, 9, 9))
    static = of_images(values)
    assert static is not None
    assert static.grid.zero == 0
    assert static.error < 0.01
    static = of_images(values - 0.5)
    assert static is not None
    assert 0 < static.grid.zero < 128
    assert round_to_grid(np.zeros(3, np.float32), static.grid).tolist() == [0, 0, 0]


def test_few_great_numbers_go_to_the_end_of_the_grid() -> None:
    values = normal(1, 64, 64, 32)
    values[0, 0, 0, 0] = 9
    static = of_images(values)
    assert static is not None
    assert static.grid.step * 255 < 0.9 * (9 - values.min())


@pytest.mark.parametrize("values", [np.full((3, 4), np.nan), np.zeros((0, 4))])
def test_no_number_gives_no_grid(values: np.ndarray) -> None:
    assert of_images(values.astype(np.float32)) is None
    assert of_rows(values.astype(np.float32), [normal(4, 3)]) is None


def test_zeros_have_a_grid() -> None:
    for static in (
        of_images(np.zeros((2, 3), "f4")),
        of_rows(np.zeros((9, 4), "f4"), [normal(4, 3)]),
    ):
        assert static is not None
        assert (static.error, static.scales) == (0, None)
        assert np.isfinite(1 / np.float32(static.grid.step))


def test_rows_are_scaled_where_channels_are_unlike() -> None:
    rows, weights = normal(200, 64), [normal(64, 24, seed=1)]
    rows[:, 5] *= 60
    static = of_rows(rows, weights)
    assert static is not None
    assert static.scales is not None
    assert static.scales.argmax() == 5
    plain = of_images(rows)
    assert plain is not None
    lost = round_to_grid(rows, plain.grid) @ weights[0] - rows @ weights[0]
    assert static.error < 0.5 * np.sqrt(np.square(lost).sum() / np.square(rows @ weights[0]).sum())


def network() -> onnx.ModelProto:
    """Two convolutions, the second beside a sum with what it reads, and a matmul of their means."""
    constants = {
        "u": normal(16, 3, 3, 3, seed=1) / 5,
        "v": normal(16, 16, 3, 3, seed=2) / 12,
        "b": normal(16, seed=3),
        "w": normal(16, 12, seed=4) / 4,
    }
    pads = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    nodes = [
        helper.make_node("Conv", ["x", "u", "b"], ["p"], name="first", **pads),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["q"], name="second", **pads),
        helper.make_node("Add", ["q", "r"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="third"),
    ]
    return model_of(nodes, {"x": "float32[n,3,h,h]"}, constants, outputs=["y", "s"])


def test_whatever_reads_an_image_of_bytes_reads_numbers_of_the_grid() -> None:
    grids = {"x": Grid(0.05, 120), "r": Grid(0.03, 0)}
    quantized = RowMatmuls(network(), grids=grids).quantize()
    x = normal(2, 3, 9, 9)
    quantized.graph.output.append(onnx.ValueInfoProto(name="r"))
    *_, total, image = session_of(quantized).run(None, {"x": x})
    inner = onnx.ModelProto()
    inner.CopyFrom(quantized)
    inner.graph.output.append(onnx.ValueInfoProto(name="q"))
    image_matmul = session_of(inner).run(["q"], {"x": x})[0]
    np.testing.assert_allclose(total - image_matmul, round_to_grid(image, grids["r"]), atol=1e-5)
    assert np.abs(total - image_matmul - image).max() > 0.01


@pytest.mark.slow
def test_a_build_multiplies_bytes_of_known_scales(tmp_path: Path) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=normal(6, 3, 14, 14, seed=9))
    arguments: dict[str, Any] = {"dims": {"n": (1, 6), "h": (5, 17)}, "samples": samples}
    manifest = compile_model(network(), output=tmp_path / "out", options=STATIC, **arguments)
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ("first", "second", "third")
    kernels = report(tmp_path / "out", "kernels.json")["kernels"]
    assert [kernel["family"] for kernel in kernels].count("int8") == (3 if has_int8() else 0)
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["precision"]["error"] < 0.05
    shown = report_of(tmp_path / "out").numerics.precision
    assert shown is not None
    assert [one.value for one in shown.placed] == ["x", "r", "f"]
    assert all(0 < one.error < 0.03 for one in shown.placed)
    # A rest of layers that still round is measured on the same grids.
    within = 0.8 * numerics["precision"]["error"]
    fewer = replace(STATIC, precision_error=within, precision_over=PrecisionOver.KEEP)
    mixed = compile_model(network(), output=tmp_path / "kept", options=fewer, **arguments)
    assert mixed.narrow is not None
    assert 0 < len(mixed.narrow.layers) < 3


@pytest.mark.slow
def test_a_layer_without_numbers_stays_as_it_is(tmp_path: Path) -> None:
    """A value that is infinite for the samples has no grid."""
    model, samples = network(), tmp_path / "samples.npz"
    model.graph.node[3].op_type = "Div"
    np.savez(samples, x=np.full((1, 3, 8, 8), -9, "float32"))
    manifest = compile_model(
        model,
        output=tmp_path / "out",
        dims={"n": (1, 2), "h": 8},
        samples=samples,
        options=replace(STATIC, verify=False),
    )
    assert manifest.narrow is not None
    assert manifest.narrow.kept["third"] == "samples gave no finite numbers of what it multiplies"
