"""Builds whose weights are stored in fewer bits: what their reports say, and what is refused."""

from pathlib import Path

import onnx
import pytest
from onnx import helper

from compiler import targets
from compiler.errors import ImportFailed, VerifyError
from compiler.ir.imported import Imported
from compiler.rounding import require_plain, rounding_of
from relaxd.contract.options import CompileOptions, WeightForm
from relaxd.contract.request import CompileRequest
from relaxd.contract.weights import StoredWeight
from relaxd.loader.report import report_of
from tests.compiler.building import build, failing, report
from tests.compiler.ir.onnx.running import model_of, normal

DIMS = {"n": (1, 5)}


def classifier() -> onnx.ModelProto:
    constants = {"w": normal(160, 128) / 13, "filter": normal(64, 16, 4, 4)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model_of(nodes, {"x": "float32[n,160]"}, constants, outputs=["y"])


@pytest.mark.slow
def test_a_build_states_what_rounding_changes(tmp_path: Path) -> None:
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
    found = report_of(output)
    assert found.stored is not None
    assert (found.stored.bytes, found.stored.before) == (12800, 81920)
    assert found.numerics.weights is not None
    assert found.numerics.weights.error == weights["error"]
    options = CompileOptions(profile=False, weights=WeightForm.INT4, weights_error=0.01)
    error = failing(tmp_path / "other", VerifyError, classifier(), dims=DIMS, options=options)
    assert error.code == "verify.weights_error"
    assert error.failure.field == "options.weights_error"
    assert "'y'" in error.message


def test_targets_and_models_that_keep_their_weights() -> None:
    request = CompileRequest.of(options=CompileOptions(weights=WeightForm.INT8).to_json())
    imported = Imported(None, (), (), (), {})  # type: ignore[arg-type]
    with pytest.raises(ImportFailed, match="not for webgpu") as caught:
        rounding_of(request, imported, targets.resolve("webgpu"))
    assert caught.value.failure.field == "options.weights"
    with pytest.raises(ImportFailed, match="ONNX"):
        require_plain(request)
    require_plain(CompileRequest())
    assert rounding_of(CompileRequest(), imported, targets.resolve("webgpu")) is None
