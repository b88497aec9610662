"""Builds that keep the layers in float32 by which outputs change most."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed, VerifyError
from compiler.quantize.sensitivity.run import Fallback
from compiler.verify.inputs import array_file
from compiler.verify.reference.onnx import save_model
from compiler.verify.sides import Reference
from relaxd.contract.options import CompileOptions, Precision, PrecisionOver
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.report import report_of
from tests.compiler.building import build, failing, report
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.quantize.test_plan import blocks

DIMS = {"n": (1, 9)}
BUDGET = {Precision.BFLOAT16: 0.02, Precision.INT8: 0.05}
DEPTH = 96


def options(form: Precision, budget: float) -> CompileOptions:
    return CompileOptions(
        profile=False, precision=form, precision_error=budget, precision_over=PrecisionOver.KEEP
    )


def center(*shape: int, seed: int) -> np.ndarray:
    """A matrix whose columns add up to zero: a constant in front of it vanishes, and what rounding
    makes of the constant does not.
    """
    matrix = normal(*shape, seed=seed) / np.float32(DEPTH**0.5)
    return (matrix - matrix.mean(0)).astype(np.float32)


def model() -> onnx.ModelProto:
    """Four matmuls, the third of numbers that are far from zero and close together."""
    constants = {
        "u": normal(DEPTH, DEPTH, seed=1) / 10,
        "v": normal(DEPTH, DEPTH, seed=2) / 10,
        "w": center(DEPTH, 64, seed=3),
        "z": normal(64, 32, seed=4) / 8,
        "far": np.array(300, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"], name="second"),
        helper.make_node("Add", ["c", "far"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["e"], name="outliers"),
        helper.make_node("Tanh", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "z"], ["y"], name="last"),
    ]
    return model_of(nodes, {"x": f"float32[n,{DEPTH}]"}, constants, outputs=["y"])


@pytest.mark.slow
@pytest.mark.parametrize("form", [Precision.BFLOAT16, Precision.INT8])
def test_the_layer_of_outliers_alone_is_kept(tmp_path: Path, form: Precision) -> None:
    budget = BUDGET[form]
    manifest = build(tmp_path / "out", model(), dims=DIMS, options=options(form, budget))
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ("first", "second", "last")
    assert set(manifest.narrow.kept) == {"outliers"}
    assert manifest.narrow.kept["outliers"].startswith("rounding it alone changes an output by ")
    assert read_manifest(tmp_path / "out").narrow == manifest.narrow
    precision = report(tmp_path / "out", "numerics.json")["precision"]
    assert precision["error"] <= budget < precision["fallback"]["error"]
    assert precision["error"] == pytest.approx(precision["fallback"]["left"], rel=0.05)
    groups = precision["fallback"]["groups"]
    assert [group["kept"] for group in groups] == [True, False, False, False]
    assert groups[0]["layers"] == ["outliers"]
    assert groups[0]["alone"] > budget > groups[1]["alone"] >= groups[2]["alone"]
    shown = report_of(tmp_path / "out").numerics.precision
    assert shown is not None
    assert shown.fallback is not None
    assert shown.fallback.groups[0].layers == ("outliers",)
    # Without the option the same build fails.
    strict = replace(options(form, budget), precision_over=PrecisionOver.FAIL)
    error = failing(tmp_path / "strict", VerifyError, model(), dims=DIMS, options=strict)
    assert error.code == "verify.precision_error"


@pytest.mark.slow
def test_equal_requests_keep_equal_layers(tmp_path: Path) -> None:
    chosen = options(Precision.INT8, 0.03)
    for name in ("one", "two"):
        build(tmp_path / name, model(), dims=DIMS, options=chosen)
    one, two = (read_manifest(tmp_path / name) for name in ("one", "two"))
    assert one.narrow == two.narrow
    assert one.narrow is not None
    assert 0 < len(one.narrow.layers) < 4
    assert [file.sha256 for name, file in one.files.items() if name != "numerics.json"] == [
        file.sha256 for name, file in two.files.items() if name != "numerics.json"
    ]
    first, second = (
        report(tmp_path / name, "numerics.json")["precision"]["fallback"] for name in ("one", "two")
    )
    assert first == second


@pytest.mark.slow
def test_weights_in_blocks_are_kept_too(tmp_path: Path) -> None:
    """Rounding both has an error of 0.0068, `second` alone of 0.0042."""
    output = tmp_path / "out"
    manifest = build(output, blocks(), dims=DIMS, options=options(Precision.INT8, 0.006))
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ("second",)
    assert set(manifest.narrow.kept) == {"first", "float"}
    precision = report(output, "numerics.json")["precision"]
    assert 0 < precision["error"] == pytest.approx(precision["fallback"]["left"], rel=0.01)
    everything = tmp_path / "all"
    manifest = build(everything, blocks(), dims=DIMS, options=options(Precision.INT8, 1e-5))
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ()
    assert report(everything, "numerics.json")["precision"]["error"] <= 1e-5
    # Last bits of sums are an error as well.
    none = options(Precision.INT8, 0.0)
    error = failing(tmp_path / "none", VerifyError, blocks(), dims=DIMS, options=none)
    assert error.code == "verify.precision_error"


@pytest.mark.slow
def test_samples_decide_with_the_points(tmp_path: Path) -> None:
    """By inputs that are drawn all layers could round; by the sample one could not."""
    constants = {"u": center(DEPTH, 64, seed=1), "v": normal(64, 32, seed=2) / 8}
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"], name="first"),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="last"),
    ]
    network = model_of(nodes, {"x": f"float32[n,{DEPTH}]"}, constants, outputs=["y"])
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=normal(9, DEPTH) + np.float32(300))
    chosen = options(Precision.INT8, 0.05)
    manifest = build(tmp_path / "drawn", network, dims=DIMS, options=chosen)
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ("first", "last")
    manifest = build(tmp_path / "out", network, dims=DIMS, options=chosen, samples=samples)
    assert manifest.narrow is not None
    assert manifest.narrow.layers == ("last",)


def test_what_the_reference_does_not_run_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    inputs = folder / "0.inputs.arrays"
    array_file.write(inputs, {"x": np.zeros((2, DEPTH + 1), np.float32)})
    reference = Reference(save_model(model(), folder), {}, ("onnxruntime.ordered",))
    fallback = Fallback(reference, [inputs], Precision.INT8, 0.1, folder)
    with pytest.raises(ImportFailed, match="answered at no point") as caught:
        fallback.search([("first",)])
    assert caught.value.code == "import.precision_over"
    assert caught.value.failure.field == "options.precision_over"
