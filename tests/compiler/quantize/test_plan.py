"""Builds whose weights are stored in fewer bits: what their reports say, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler import api, compile_model, targets
from compiler import build as builder
from compiler.errors import ImportFailed, VerifyError
from compiler.frontend import entry
from compiler.ir import import_model
from compiler.ir.files.model_file import LoadedModel
from compiler.ir.imported import Imported
from compiler.ir.onnx.model.matmuls import matmul_labels
from compiler.passes.cpu.families.nbits import emit
from compiler.passes.cpu.families.nbits.rows import prepare_float_rows
from compiler.quantize.measuring import Measurements
from compiler.quantize.onnx.block_matmuls import set_level
from compiler.quantize.plan import as_wanted, require_plain, require_processor
from compiler.verify.sides import Reference
from relaxd.contract.bundle.weights import StoredWeight
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import Calibration, CompileOptions, Flavour, Precision, WeightForm
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.report import report_of
from tests.compiler.building import build, failing, report
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.cpu.families.test_nbits import model_of as model_of_blocks
from tests.compiler.passes.cpu.families.test_nbits import table
from tests.compiler.quantize.calibration.test_gptq import rows_of
from tests.support.geometries import has_int8

DIMS = {"n": (1, 5)}


def classifier() -> onnx.ModelProto:
    constants = {"w": normal(160, 128) / 13, "filter": normal(64, 16, 4, 4)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model_of(nodes, {"x": "float32[n,160]"}, constants, outputs=["y"])


@pytest.mark.slow
def test_a_build_states_what_int4_weights_change(tmp_path: Path) -> None:
    options = CompileOptions(profile=False, weights=WeightForm.INT4, weights_error=0.2)
    output = tmp_path / "out"
    manifest = build(output, classifier(), dims=DIMS, options=options)
    assert manifest.stored is not None
    assert manifest.stored.layers == {"w": StoredWeight(WeightForm.INT4, (160, 128), 128 * 100)}
    assert manifest.stored.kept == {
        "filter": "no matmul multiplies by it, and no rows of it are read"
    }
    numerics = report(output, "numerics.json")
    assert numerics["verdict"] == "passed"
    # The library computes the rounded model as exactly as any other.
    assert numerics["outputs"][0]["max_abs"] < 1e-4
    weights = numerics["weights"]
    assert (weights["form"], weights["limit"]) == ("int4", 0.2)
    assert weights["reference"].startswith("onnxruntime ")
    assert 0.03 < weights["error"] < 0.15
    assert weights["outputs"][0]["mean_abs"] > 100 * numerics["outputs"][0]["max_abs"]
    bundle_report = report_of(output)
    assert bundle_report.stored is not None
    assert (bundle_report.stored.bytes, bundle_report.stored.before) == (12800, 81920)
    assert bundle_report.numerics.weights is not None
    assert bundle_report.numerics.weights.error == weights["error"]
    options = CompileOptions(profile=False, weights=WeightForm.INT4, weights_error=0.01)
    error = failing(tmp_path / "other", VerifyError, classifier(), dims=DIMS, options=options)
    assert error.code == "verify.weights_error"
    assert error.failure.field == "options.weights_error"
    assert "'y'" in error.message


@pytest.mark.slow
def test_a_build_states_what_bfloat16_operands_change(tmp_path: Path) -> None:
    options = CompileOptions(profile=False, precision=Precision.BFLOAT16, precision_error=0.02)
    output = tmp_path / "out"
    manifest = build(output, perceptron(), dims=DIMS, options=options)
    assert manifest.narrow == QuantizedLayers(
        Precision.BFLOAT16,
        ("first", "second"),
        {"inner": "neither side is constant", "few": "it has fewer than 8 columns"},
    )
    assert read_manifest(output).narrow == manifest.narrow
    numerics = report(output, "numerics.json")
    assert numerics["verdict"] == "passed"
    precision = numerics["precision"]
    assert (precision["form"], precision["limit"]) == ("bfloat16", 0.02)
    assert 0.001 < precision["error"] < 0.01
    assert precision["error"] < 1.2 * precision["expected"]
    assert [one["name"] for one in precision["outputs"]] == ["y", "z", "s"]
    shown = report_of(output)
    assert shown.narrow is not None
    assert (shown.narrow.layers, len(shown.narrow.kept)) == (2, 2)
    assert shown.numerics.precision is not None
    on_machine = replace(options, flavour=Flavour.VM)
    manifest = build(tmp_path / "machine", perceptron(), dims=DIMS, options=on_machine)
    assert manifest.narrow is not None
    assert report(tmp_path / "machine", "numerics.json")["precision"]["error"] < 0.01
    options = CompileOptions(profile=False, precision=Precision.BFLOAT16, precision_error=0.0005)
    error = failing(tmp_path / "other", VerifyError, perceptron(), dims=DIMS, options=options)
    assert error.code == "verify.precision_error"
    assert error.failure.field == "options.precision_error"


def perceptron() -> onnx.ModelProto:
    """Two matmuls by constants, one of two computed sides, and one of few columns."""
    constants = {
        "u": normal(160, 128) / 13,
        "v": normal(128, 96, seed=1) / 11,
        "few": normal(96, 5, seed=2) / 10,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="second"),
        helper.make_node("Transpose", ["y"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["y", "t"], ["s"], name="inner"),
        helper.make_node("MatMul", ["y", "few"], ["z"], name="few"),
    ]
    return model_of(nodes, {"x": "float32[n,160]"}, constants, outputs=["y", "z", "s"])


def test_targets_and_models_that_round_nothing() -> None:
    webgpu = targets.resolve("webgpu")
    for option, form in (("weights", "int8"), ("precision", "bfloat16"), ("precision", "int8")):
        request = CompileRequest.of(options={option: form})
        with pytest.raises(ImportFailed, match="not for webgpu") as caught:
            require_processor(request, webgpu)
        assert caught.value.failure.field == f"options.{option}"
        assert caught.value.code == f"import.{option}"
        with pytest.raises(ImportFailed, match="ONNX"):
            require_plain(request)
    require_plain(CompileRequest())
    require_processor(CompileRequest(), webgpu)


@pytest.mark.parametrize("form", ["float32", "bfloat16", "int8"])
def test_a_model_is_imported_once(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports: list[onnx.ModelProto] = []

    def import_counted(model: onnx.ModelProto, request: CompileRequest) -> Imported:
        imports.append(model)
        return import_model(model, request)

    monkeypatch.setattr(entry, "import_model", import_counted)
    request = CompileRequest.of(dims=DIMS, options={"precision": form})
    measurements = Measurements(request, Reference(tmp_path, {}), None, tmp_path, more_points=True)
    model = LoadedModel(perceptron(), "sha256:0")
    _, plan = entry.imported_from(model, request, targets.resolve("native"), measurements)
    assert len(imports) == 1
    layers = None if plan.layers is None else plan.layers.layers
    # Operands of bfloat16 are found in the module.
    assert layers == (("first", "second") if form == "int8" else None)
    assert plan.operands == (frozenset() if form == "float32" else matmul_labels(model.proto))


@pytest.mark.slow
def test_a_build_states_what_int8_rows_change(tmp_path: Path) -> None:
    options = CompileOptions(profile=False, precision=Precision.INT8, precision_error=0.05)
    output, model = tmp_path / "out", blocks()
    manifest = build(output, model, dims=DIMS, options=options)
    assert manifest.narrow == QuantizedLayers(
        Precision.INT8,
        ("first", "second"),
        {"float": "it multiplies no weights in blocks of 4 or 8 bits"},
    )
    assert read_manifest(output).narrow == manifest.narrow
    numerics = report(output, "numerics.json")
    # The reference rounds the very same numbers: what is left are the last bits of sums.
    assert (numerics["verdict"], numerics["outputs"][0]["slack"]) == ("passed", 0)
    assert numerics["outputs"][0]["max_abs"] < 1e-5 * numerics["outputs"][0]["range"]
    precision = numerics["precision"]
    assert (precision["form"], precision["limit"]) == ("int8", 0.05)
    assert 0.002 < precision["error"] < 0.02
    assert precision["error"] == pytest.approx(precision["expected"], rel=1e-3)
    # A file that states that it rounds departs from the same float32 model.
    set_level(model, 4)
    build(tmp_path / "stated", model, dims=DIMS, options=options)
    again = report(tmp_path / "stated", "numerics.json")["precision"]
    assert again["error"] == pytest.approx(precision["error"], rel=1e-3)
    on_machine = replace(options, flavour=Flavour.VM)
    build(tmp_path / "machine", blocks(), dims=DIMS, options=on_machine)
    alike = report(tmp_path / "machine", "numerics.json")["precision"]["error"]
    assert alike == pytest.approx(precision["error"], rel=1e-3)
    options = CompileOptions(profile=False, precision=Precision.INT8, precision_error=0.001)
    error = failing(tmp_path / "other", VerifyError, blocks(), dims=DIMS, options=options)
    assert error.code == "verify.precision_error"


@pytest.mark.slow
def test_a_library_that_does_not_round_as_asked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CompileOptions(profile=False, precision=Precision.INT8)
    monkeypatch.setattr(api, "run_child", lambda job, **settings: builder.build(job))
    monkeypatch.setattr(emit, "quantize_rows", prepare_float_rows)
    error = failing(tmp_path / "out", VerifyError, blocks(), dims=DIMS, options=options)
    assert error.code == "verify.mismatch"


@pytest.mark.slow
def test_a_build_states_what_bytes_change(tmp_path: Path) -> None:
    options = CompileOptions(profile=False, precision=Precision.INT8, precision_error=0.05)
    output = tmp_path / "out"
    manifest = build(output, perceptron(), dims=DIMS, options=options)
    assert manifest.narrow == QuantizedLayers(
        Precision.INT8,
        ("first", "second"),
        {
            "inner": "its right side is no constant of floats",
            "few": "it has fewer than 8 columns",
        },
    )
    numerics = report(output, "numerics.json")
    assert numerics["verdict"] == "passed"
    precision = numerics["precision"]
    assert (precision["form"], precision["limit"]) == ("int8", 0.05)
    assert 0.002 < precision["error"] < 0.03
    assert precision["error"] == pytest.approx(precision["expected"], rel=0.02)
    if has_int8():
        assert (output / "weights.bin").stat().st_size < 1.5 * (160 * 128 + 128 * 96)
    on_machine = replace(options, flavour=Flavour.VM)
    build(tmp_path / "machine", perceptron(), dims=DIMS, options=on_machine)
    alike = report(tmp_path / "machine", "numerics.json")["precision"]["error"]
    assert alike == pytest.approx(precision["error"], rel=0.02)
    options = replace(options, precision_error=0.001)
    error = failing(tmp_path / "other", VerifyError, perceptron(), dims=DIMS, options=options)
    assert error.code == "verify.precision_error"


def test_models_without_anything_to_round_are_refused() -> None:
    request = CompileRequest.of(options={"precision": "int8"})
    old = blocks()
    old.opset_import[0].version = 12
    nothing = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": "float32[n,4]"}, {}, outputs=["y"]
    )
    for model in (nothing, old):
        with pytest.raises(ImportFailed, match="int8") as caught:
            as_wanted(LoadedModel(model, "sha256:0"), request)
        assert (caught.value.code, caught.value.failure.field) == (
            "import.precision",
            "options.precision",
        )
    loaded = as_wanted(LoadedModel(blocks(), "sha256:0"), request)
    assert isinstance(loaded, LoadedModel)
    assert loaded.file is None


def test_channels_of_weights_in_blocks_cannot_be_scaled() -> None:
    request = CompileRequest.of(options={"precision": "int8", "calibration": "smooth"})
    with pytest.raises(ImportFailed, match="in blocks already") as caught:
        as_wanted(LoadedModel(blocks(), "sha256:0"), request)
    assert caught.value.code == "import.calibration"
    assert caught.value.failure.field == "options.calibration"


def blocks() -> onnx.ModelProto:
    """Two matmuls by weights in blocks, and one by a float matrix."""
    model = model_of_blocks(table(4, 32, 96, 64, "bytes"))
    other = model_of_blocks(table(8, 16, 64, 40, "none", seed=1))
    for each, names in ((model, "x w s z h first"), (other, "r w2 s2 p second")):
        *inputs, output, name = names.split()
        node = each.graph.node[0]
        node.input[:], node.output[:] = inputs, [output]
        node.name = name
    other.graph.initializer[0].name, other.graph.initializer[1].name = "w2", "s2"
    model.graph.initializer.extend([*other.graph.initializer])
    model.graph.initializer.append(numpy_helper.from_array(normal(40, 24) / 6, "real"))
    model.graph.node.append(helper.make_node("Relu", ["h"], ["r"]))
    model.graph.node.extend(other.graph.node)
    model.graph.node.append(helper.make_node("MatMul", ["p", "real"], ["y"], name="float"))
    return model


@pytest.mark.slow
def test_a_calibrated_build_is_verified_as_any_other(tmp_path: Path) -> None:
    """The error at the samples is far below that of rounding to nearest; scales are no longer those
    of the greatest number of a block.
    """
    model, samples = perceptron(), tmp_path / "samples.npz"
    np.savez(samples, x=rows_of(0, 300, 160) / 10)
    errors = {}
    for calibration in (Calibration.NONE, Calibration.GPTQ):
        output = tmp_path / calibration
        options = CompileOptions(
            profile=False, weights=WeightForm.INT4, weights_error=0.2, calibration=calibration
        )
        manifest = compile_model(
            model, output=output, dims={"n": (1, 400)}, samples=samples, options=options
        )
        assert manifest.stored is not None
        assert manifest.stored.calibration is calibration
        assert manifest.stored.layers["u"] == StoredWeight(
            WeightForm.INT4, (160, 128), 128 * 100, None
        )
        assert read_manifest(output).stored == manifest.stored
        numerics = report(output, "numerics.json")
        assert numerics["verdict"] == "passed"
        errors[calibration] = numerics["weights"]["error"]
        shown = report_of(output).stored
        assert shown is not None
        assert (shown.calibration, shown.nearest) == (calibration.value, {})
    assert errors[Calibration.GPTQ] < 0.75 * errors[Calibration.NONE]


def test_calibration_wants_samples(tmp_path: Path) -> None:
    options = CompileOptions(weights=WeightForm.INT4, calibration=Calibration.GPTQ)
    with pytest.raises(DeclarationError, match="samples") as caught:
        compile_model(perceptron(), output=tmp_path / "out", dims=DIMS, options=options)
    assert caught.value.field == "samples"
