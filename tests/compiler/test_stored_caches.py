"""Builds whose in-place KV caches are stored in fewer bits: what their reports say, and what is
refused.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import te

from compiler.errors import ImportFailed, VerifyError
from compiler.ir import import_model
from compiler.ir.ops.shape import caches
from compiler.ir.shapes import extents as ex
from compiler.tir import byte_rows
from relaxd.contract.bundle.byte_rows import SCALE_BYTES
from relaxd.contract.bundle.state import State
from relaxd.contract.options import CacheForm, CompileOptions, Precision, StateForm, WeightForm
from relaxd.contract.request import CompileRequest
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.report import report_of
from tests.compiler.building import build, failing, report
from tests.support.models.decoders import FILLED_DIMS, GROUPS, GROWN_DIMS, SIZE, WIDTH, fill, grown

STORED = CompileOptions(state=StateForm.LIFTED, cache=CacheForm.FLOAT16, profile=False)


@pytest.mark.slow
def test_a_build_states_what_float16_rows_change(tmp_path: Path) -> None:
    output = tmp_path / "out"
    options = replace(STORED, cache_error=0.01)
    manifest = build(output, fill(), dims=FILLED_DIMS, options=options)
    assert manifest.state is not None
    assert manifest.state.stored is CacheForm.FLOAT16
    assert read_manifest(output).state == manifest.state
    stored = {cache.input for cache in manifest.state.caches}
    assert {spec.name for spec in manifest.inputs if spec.dtype == "float16"} == stored
    numerics = report(output, "numerics.json")
    assert numerics["verdict"] == "passed"
    changes = numerics["cache"]
    assert (changes["form"], changes["limit"]) == ("float16", 0.01)
    assert 1e-4 < changes["error"] < 2e-3
    assert changes["error"] < 1.25 * changes["expected"]
    assert {one["name"] for one in changes["outputs"]} >= {"logits", "present.0.key"}
    shown = report_of(output).numerics.cache
    assert shown is not None
    assert shown.error == changes["error"]
    error = failing(
        tmp_path / "other",
        VerifyError,
        fill(),
        dims=FILLED_DIMS,
        options=replace(STORED, cache_error=1e-5),
    )
    assert error.code == "verify.cache_error"
    assert error.failure.field == "options.cache_error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "dims", "precision"),
    [
        (fill, FILLED_DIMS, Precision.FLOAT32),
        (fill, FILLED_DIMS, Precision.BFLOAT16),
        (grown, GROWN_DIMS, Precision.FLOAT32),
    ],
)
def test_a_build_states_what_rows_of_bytes_change(
    model: Callable[[], onnx.ModelProto], dims: dict[str, Any], precision: Precision, tmp_path: Path
) -> None:
    options = replace(STORED, cache=CacheForm.INT8, cache_error=0.05, precision=precision)
    manifest = build(tmp_path / "out", model(), dims=dims, options=options)
    assert manifest.state is not None
    assert manifest.state.stored is CacheForm.INT8
    for cache in manifest.state.caches:
        (spec,) = [spec for spec in manifest.inputs if spec.name == cache.input]
        assert spec.text == f"int8[batch,{GROUPS},capacity,{SIZE + SCALE_BYTES}]"
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith("onnxruntime ")
    changes = numerics["cache"]
    assert changes["form"] == "int8"
    assert 1e-3 < changes["error"] < 2e-2
    assert changes["error"] < 1.25 * changes["expected"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("weights", replace(STORED, weights=WeightForm.INT8)),
        ("precision", replace(STORED, precision=Precision.INT8)),
    ],
)
def test_each_quantization_has_its_own_error(
    part: str, options: CompileOptions, tmp_path: Path
) -> None:
    model = fill()
    (head,) = [weight for weight in model.graph.initializer if weight.name == "head"]
    # Large enough to be worth rounding.
    wide = np.random.default_rng(1).standard_normal((WIDTH, 512)).astype(np.float32)
    head.CopyFrom(numpy_helper.from_array(wide, "head"))
    build(tmp_path / "out", model, dims=FILLED_DIMS, options=options)
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics[part]["error"] > 5e-3
    assert numerics["cache"]["error"] < numerics[part]["error"]


@pytest.mark.slow
def test_rows_in_float32_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that rounds rows otherwise than the reference is no faithful one."""
    from compiler import build as builder
    from compiler.isolation.messages import CompileJob

    put = caches._put

    def coarse(b: Any, buffer: Any, now: Any, *others: Any) -> Any:
        shape = [ex.prim(extent) for extent in now.shape]

        def compute(x: Any) -> Any:
            to_float16 = lambda *index: x(*index).astype("bfloat16").astype("float32")  # noqa: E731
            return te.compute(shape, to_float16, name="coarse")

        return put(b, buffer, b.te(compute, now, name="coarse"), *others)

    monkeypatch.setattr(caches, "_put", coarse)
    path = tmp_path / "model.onnx"
    onnx.save(grown(1), path)
    request = CompileRequest.of(dims=GROWN_DIMS, options=STORED.to_json())
    job = CompileJob(str(path), request.to_json(), "native", str(tmp_path / "out"), "coarse")
    with pytest.raises(VerifyError, match="differ"):
        builder.build(job)


@pytest.mark.slow
def test_a_scale_that_is_wrong_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part in a hundred, beside numbers that are rounded to one in 127 of the greatest."""
    from compiler import build as builder
    from compiler.ir.ops.shape import quantize_rows
    from compiler.isolation.messages import CompileJob

    bytes_of, wrong = byte_rows.bytes_of, te.const(1.01, "float32")
    monkeypatch.setattr(quantize_rows, "bytes_of", lambda scale: bytes_of(scale * wrong))
    path = tmp_path / "model.onnx"
    onnx.save(grown(1), path)
    options = replace(STORED, cache=CacheForm.INT8)
    request = CompileRequest.of(dims=GROWN_DIMS, options=options.to_json())
    job = CompileJob(str(path), request.to_json(), "native", str(tmp_path / "out"), "wrong")
    with pytest.raises(VerifyError):
        builder.build(job)


def test_rows_of_bytes_have_a_size() -> None:
    """Behind rows of any size no scale has a place."""
    model = grown(1)
    for value in model.graph.input:
        if "past_" in value.name:
            value.type.tensor_type.shape.dim[3].dim_param = "size"
    options = {"state": "lifted", "cache": "int8"}
    with pytest.raises(ImportFailed, match="have no fixed size") as caught:
        import_model(
            model, CompileRequest.of(dims={**GROWN_DIMS, "size": (1, 64)}, options=options)
        )
    assert caught.value.code == "import.cache"
    fixed = import_model(
        model, CompileRequest.of(dims={**GROWN_DIMS, "size": SIZE}, options=options)
    )
    ends = {
        spec.shape[-1].evaluate({"size": SIZE}) for spec in fixed.inputs if "past_" in spec.name
    }
    assert ends == {SIZE + SCALE_BYTES}


@pytest.mark.parametrize("form", [CacheForm.FLOAT16, CacheForm.BFLOAT16, CacheForm.INT8])
def test_caches_that_are_16_bits_already_stay(form: CacheForm) -> None:
    model = to_float16(grown(1))
    options = {"state": "lifted"}
    imported = import_model(model, CompileRequest.of(dims=GROWN_DIMS, options=options))
    assert imported.in_place is not None
    assert imported.in_place.state.stored is None
    assert [spec.dtype for spec in imported.inputs if "past_" in spec.name] == ["float16"] * 2
    request = CompileRequest.of(dims=GROWN_DIMS, options={**options, "cache": form.value})
    with pytest.raises(ImportFailed, match="the model's caches are float16") as caught:
        import_model(model, request)
    assert caught.value.code == "import.cache"
    assert caught.value.failure.field == "options.cache"


@pytest.mark.slow
def test_a_model_of_float16_keeps_its_own_caches(tmp_path: Path) -> None:
    options = replace(STORED, cache=CacheForm.FLOAT32)
    manifest = build(tmp_path / "out", to_float16(grown(1)), dims=GROWN_DIMS, options=options)
    assert manifest.state is not None
    assert "stored" not in manifest.state.to_json()
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert "cache" not in numerics


def to_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in float16."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in copy.graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.dtype == np.float32:
            weight.CopyFrom(numpy_helper.from_array(array.astype(np.float16), weight.name))
    for node in copy.graph.node:
        if node.op_type == "Constant":
            node.CopyFrom(helper.make_node("Identity", node.input, node.output))
    return copy


def test_a_form_that_no_relaxd_knows(tmp_path: Path) -> None:
    request = CompileRequest.of(dims=GROWN_DIMS, options={"state": "lifted", "cache": "float16"})
    imported = import_model(grown(1), request)
    assert imported.in_place is not None
    document = imported.in_place.state.to_json()
    assert State.from_json(document) == imported.in_place.state
    with pytest.raises(BundleError, match="stored in a form"):
        State.from_json({**document, "stored": "int3"})
