"""Whole builds of tiny models through the real compile process."""

from pathlib import Path

import onnx
import pytest

from compiler import build as builder
from compiler import targets
from compiler.errors import CompileError, ImportFailed, LoadError, UnknownTarget
from compiler.host.capabilities import verification
from compiler.ir.files.model_file import read_model
from compiler.isolation.child import run_child
from compiler.isolation.messages import CompileJob, Event, FamiliesJob, InspectJob, StageStarted
from compiler.isolation.probe import level as sandbox_level
from relaxd.contract.bundle.manifest import DUMP_START, Manifest
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from relaxd.errors import DeclarationError
from relaxd.loader.report import report_of
from tests.compiler.building import DIMS, QUICK, build, failing, report
from tests.compiler.graphs import WIDTH, add_and_divide, count_words

pytestmark = pytest.mark.slow


def test_a_build_passes_through_every_stage(built: tuple[Path, Manifest, list[Event]]) -> None:
    stages = [event.stage for event in built[2] if isinstance(event, StageStarted)]
    assert stages == [
        Stage.LOAD,
        Stage.IMPORT,
        Stage.PASS,
        Stage.CODEGEN,
        Stage.LINK,
        Stage.VERIFY,
        Stage.PROFILE,
    ]


def test_the_manifest_lists_every_file(built: tuple[Path, Manifest, list[Event]]) -> None:
    output, manifest, _ = built
    assert manifest == Manifest.from_json(report(output, "manifest.json"))
    there = {path.name for path in output.iterdir()}
    assert there == {"manifest.json", "profile.json", *manifest.files}
    assert manifest.files.keys() == {
        "model.so",
        "weights.bin",
        "model.h",
        "librelaxd_helpers.so",
        "kernels.json",
        "numerics.json",
        "LICENSES",
    }


def test_the_manifest_says_what_was_built(built: tuple[Path, Manifest, list[Event]]) -> None:
    _, manifest, _ = built
    assert [spec.text for spec in manifest.inputs] == [f"float32[batch,{WIDTH}]"]
    assert (manifest.target["name"], manifest.target["status"]) == ("native", "executed")
    assert manifest.builder == {"sandbox": sandbox_level().value}
    assert "builder" not in manifest.action_key["parts"]
    assert manifest.load.isa == targets.resolve("native").isa
    assert manifest.toolchain["llvm_version"].isdigit()
    assert manifest.action_key["parts"]["request"]["dims"] == {
        "batch": {"min": 1, "max": 8, "multiple": 1}
    }


def test_numerics_cover_the_range(built: tuple[Path, Manifest, list[Event]]) -> None:
    numerics = report(built[0], "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith("onnxruntime ")
    assert {point["dims"]["batch"] for point in numerics["points"]} >= {1, 8}
    assert numerics["left_out"] == []
    (output,) = numerics["outputs"]
    assert (output["name"], output["verdict"]) == ("y", "passed")
    assert output["max_abs"] < 1e-5
    assert [one["dims"] for one in output["points"]] == [p["dims"] for p in numerics["points"]]
    assert max(one["max_abs"] for one in output["points"]) == output["max_abs"]
    assert all(0 <= one["of_tolerance"] < 1 for one in output["points"])
    assert output["worst"] in output["points"]


def test_the_profile_measures(built: tuple[Path, Manifest, list[Event]]) -> None:
    profile = report(built[0], "profile.json")
    assert {point["label"] for point in profile["points"]} == {"min", "opt", "max"}
    assert all(
        0 < point["min_ms"] <= point["p25_ms"] <= point["median_ms"] <= point["p75_ms"]
        and point["p75_ms"] <= point["p95_ms"]
        and point["runs"] >= point["rounds"] >= 3
        for point in profile["points"]
    )
    beside = [point["reference"] for point in profile["points"]]
    assert all(timed["engine"].startswith("onnxruntime ") for timed in beside)
    assert all(timed["median_ms"] > 0 and timed["runs"] >= 3 for timed in beside)
    assert profile["machine"]["processor"]
    assert profile["machine"]["threads"] >= 1
    assert len(profile["machine"]["load_average"]) == 3
    assert profile["load_ms"] > 0
    assert profile["peak_rss_bytes"] > 10 << 20
    assert any("add" in row["name"] for row in profile["operators"]["rows"])


def test_the_report_names_family_and_nodes_of_every_kernel(
    built: tuple[Path, Manifest, list[Event]],
) -> None:
    bundle_report = report_of(built[0])
    assert {kernel.family for kernel in bundle_report.kernels} == {"generic"}
    assert bundle_report.profile is not None
    assert bundle_report.profile.operators is not None
    names = {kernel.name for kernel in bundle_report.kernels}
    ran = [row for row in bundle_report.profile.operators.rows if row.name in names]
    assert ran
    assert all(row.family == "generic" and row.nodes for row in ran)
    profile = report(built[0], "kernels.json")
    request = CompileRequest.of(dims=DIMS)
    model = built[0].parent / "model.onnx"
    onnx.save(add_and_divide(), model)
    listed = run_child(FamiliesJob(str(model), request.to_json(), "native"))
    assert listed == {"target": "native", "kernels": profile["kernels"]}


def test_a_dump_changes_nothing_in_the_bundle(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    manifest = build(tmp_path / "out", options={"dump": True})
    assert manifest.action_key == built[1].action_key
    assert manifest.files["model.so"] == built[1].files["model.so"]
    assert manifest.files.keys() == built[1].files.keys()
    names = {path.name for path in (tmp_path / "out.dump").iterdir()}
    assert {DUMP_START, "50_memory_plan.py", "kernels", "kernels.json"} <= names


def test_the_same_request_gives_the_same_library(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    again = build(tmp_path / "out")
    assert again.action_key == built[1].action_key
    assert again.files["model.so"] == built[1].files["model.so"]


@pytest.mark.parametrize("form", ["path", "bytes"])
def test_a_model_in_any_form(tmp_path: Path, form: str) -> None:
    data = add_and_divide().SerializeToString()
    path = tmp_path / "my_model.onnx"
    path.write_bytes(data)
    manifest = build(tmp_path / "out", path if form == "path" else data, options=QUICK)
    assert manifest.name == ("my_model" if form == "path" else "model")
    assert manifest.target["status"] == "unverified"
    assert report(tmp_path / "out", "numerics.json")["reason"] == "options.verify is off"
    profile = report(tmp_path / "out", "profile.json")
    assert (profile["measured"], profile["reason"]) == (False, "options.profile is off")
    assert [kernel["family"] for kernel in report(tmp_path / "out", "kernels.json")["kernels"]] == [
        "generic"
    ]


def test_large_weights_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    manifest = build(tmp_path / "out", add_and_divide(rows=64), dims={"batch": 64})
    assert len(manifest.weights) == 2
    assert manifest.files["weights.bin"].size >= 2 * 64 * WIDTH * 4
    assert manifest.files["model.so"].size < 64 << 10


def test_a_target_beyond_this_machine_is_compiled_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verification(targets.resolve("x86-64-v4")) is targets.TargetStatus.EXECUTED:
        pytest.skip("this machine runs x86-64-v4")
    monkeypatch.setenv("PATH", str(tmp_path))
    manifest = build(tmp_path / "out", target="x86-64-v4")
    assert manifest.target["status"] == "compiled_only"
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "not_run"
    assert "avx512f" in numerics["reason"]
    assert numerics["reason"].endswith("install bochs bochs-term bochsbios vgabios")


def test_an_unsupported_operator_is_named(tmp_path: Path) -> None:
    error = failing(tmp_path / "out", ImportFailed, count_words())
    assert (error.code, error.failure.op) == ("import.unsupported_op", "TfIdfVectorizer")


def test_a_dim_that_the_model_does_not_have(tmp_path: Path) -> None:
    error = failing(tmp_path / "out", CompileError, dims={"batch": 4, "sequence": 8})
    assert error.failure.field == "dims.sequence"


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"text", "load.not_onnx"), (add_and_divide(64).SerializeToString()[:900], "load.truncated")],
)
def test_a_bad_model_is_a_load_error(tmp_path: Path, data: bytes, code: str) -> None:
    assert failing(tmp_path / "out", LoadError, data).code == code


def test_an_unknown_target(tmp_path: Path) -> None:
    assert failing(tmp_path / "out", UnknownTarget, target="vax").code == "target.unknown"


def test_a_malformed_declaration_fails_before_any_process(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError):
        build(tmp_path / "out", dims={"batch": (8, 1)})


def test_an_output_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(LoadError, match="not an empty directory"):
        build(tmp_path / "out")
    assert (tmp_path / "out" / "precious").read_text() == "x"


def test_inspect_reports_without_compiling(tmp_path: Path) -> None:
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    shown = run_child(InspectJob(str(tmp_path / "m.onnx"), CompileRequest.of(dims=DIMS).to_json()))
    assert isinstance(shown, dict)
    assert shown


def test_the_callers_digest_is_the_keys_part(tmp_path: Path) -> None:
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx").digest != "sha256:" + "a" * 64
    request = CompileRequest.of(dims=DIMS, options=QUICK).to_json()
    job = CompileJob(
        str(tmp_path / "m.onnx"),
        request,
        "native",
        str(tmp_path / "out"),
        "named",
        model_digest="sha256:" + "a" * 64,
    )
    manifest = run_child(job)
    assert isinstance(manifest, Manifest)
    assert manifest.action_key["parts"]["model"] == "sha256:" + "a" * 64


def test_the_driver_runs_in_this_process_too(tmp_path: Path) -> None:
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    request = CompileRequest.of(dims=DIMS, options=QUICK).to_json()
    manifest = builder.build(
        CompileJob(str(tmp_path / "m.onnx"), request, "x86-64-v2", str(tmp_path / "out"), "m")
    )
    assert manifest.target["name"] == "x86-64-v2"
    assert Manifest.from_json(report(tmp_path / "out", "manifest.json")) == manifest
