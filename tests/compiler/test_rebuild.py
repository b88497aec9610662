"""A model compiled again, beside the bundle that a statement says it made."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler import rebuild
from compiler.api import compile_request
from compiler.key import action_key
from compiler.targets import resolve
from compiler.toolchain.versions import versions
from relaxd.contract.canonical import digest_of
from relaxd.contract.options import Calibration, Precision, PrecisionOver, WeightForm
from relaxd.contract.request import CompileRequest
from relaxd.provenance.errors import TrustError
from relaxd.provenance.statement import Subjects, provenance
from tests.support.models.small import perceptron

TARGET = "x86-64-v3"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    path.write_bytes(perceptron().SerializeToString())
    return path


def origin_of(model: Path, toolchain: dict[str, str]) -> rebuild.Origin:
    """The origin after a statement was signed, sent and read."""
    request = CompileRequest.of(
        dims={"batch": (1, 4), "seq": (1, 64)}, options={"verify": False, "profile": False}
    )
    digest = digest_of(model.read_bytes())
    key = action_key(digest, request, resolve(TARGET), toolchain)
    subjects = Subjects("sha256:" + "0" * 64, {"model.so": "sha256:" + "1" * 64})
    statement: Any = provenance(subjects, "relaxd/bundles", TARGET, key, "urn:us")
    return rebuild.Origin.of(json.loads(json.dumps(statement)))


@pytest.fixture(scope="module")
def bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("built") / "bundle"
    origin = origin_of(model, versions())
    compile_request(model, origin.request, output=output, target=TARGET)
    return output


def test_a_model_compiles_to_the_same_bits(model: Path, bundle: Path, tmp_path: Path) -> None:
    same = rebuild.compare(origin_of(model, versions()), bundle, model, tmp_path / "again")
    assert {"model.so", "weights.bin", "librelaxd_helpers.so", "LICENSES"} <= set(same)
    assert (tmp_path / "again" / "model.so").read_bytes() == (bundle / "model.so").read_bytes()
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"]["model.so"]["sha256"] = "0" * 64
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TrustError) as refused:
        rebuild.compare(origin_of(model, versions()), tmp_path / "other", model, tmp_path / "third")
    assert refused.value.part == "model.so"


def test_the_file_of_the_model_may_have_another_name(
    model: Path, bundle: Path, tmp_path: Path
) -> None:
    fetched = tmp_path / "0f3a.onnx"
    fetched.write_bytes(model.read_bytes())
    assert "model.h" in rebuild.compare(
        origin_of(model, versions()), bundle, fetched, tmp_path / "again"
    )


def test_another_toolchain_is_named_and_nothing_compiled(model: Path, tmp_path: Path) -> None:
    older = {**versions(), "tvm": "0.1"}
    with pytest.raises(TrustError, match=r"toolchain\.tvm differ") as refused:
        rebuild.compare(origin_of(model, older), tmp_path, model, tmp_path / "again")
    assert refused.value.part == "action_key"


def test_calibrated_weights_take_the_samples_that_they_were_calibrated_by(
    model: Path, tmp_path: Path
) -> None:
    samples = tmp_path / "samples.npz"
    samples.write_bytes(b"samples")
    origin = origin_of(model, versions())
    options = replace(origin.request.options, weights=WeightForm.INT4, calibration=Calibration.GPTQ)
    digest = digest_of(b"other samples")
    calibrated = replace(origin, request=replace(origin.request, options=options, samples=digest))
    for file, message in ((None, "--samples"), (samples, "samples are sha256:")):
        with pytest.raises(TrustError, match=message) as refused:
            rebuild.compare(calibrated, tmp_path, model, tmp_path / "again", file)
        assert refused.value.part == "samples"


@pytest.mark.slow
def test_layers_stay_float32_again(model: Path, tmp_path: Path) -> None:
    """That it is so decides the error which is allowed, at the samples too."""
    samples, built = tmp_path / "samples.npz", tmp_path / "built"
    np.savez(samples, x=np.random.default_rng(0).standard_normal((2, 9, 32)).astype("float32"))
    origin = origin_of(model, versions())
    options = replace(
        origin.request.options,
        verify=True,
        precision=Precision.INT8,
        precision_error=0.003,
        precision_over=PrecisionOver.KEEP,
    )
    request = replace(
        origin.request, options=options, samples=digest_of(samples.read_bytes()), targets=(TARGET,)
    )
    digest = digest_of(model.read_bytes())
    key = action_key(digest, request, resolve(TARGET), versions())
    signed = replace(origin, request=request, key=key)
    manifest = compile_request(
        model, request, output=built, target=TARGET, samples=samples, kernels=False
    )
    assert manifest.narrow is not None
    assert len(manifest.narrow.layers) == 1
    same = rebuild.compare(signed, built, model, tmp_path / "again", samples)
    assert {"model.so", "weights.bin"} <= set(same)
    with pytest.raises(TrustError) as refused:
        rebuild.compare(signed, built, model, tmp_path / "other")
    assert refused.value.part == "samples"


def test_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(b"other")
    with pytest.raises(TrustError) as refused:
        rebuild.compare(origin_of(model, versions()), tmp_path, other, tmp_path / "again")
    assert refused.value.part == "model"


def test_a_statement_of_another_build_is_refused() -> None:
    with pytest.raises(TrustError, match="buildDefinition"):
        rebuild.Origin.of({"predicate": {}})
