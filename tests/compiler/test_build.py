"""Whole builds of tiny models through the real compile process."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import build as builder
from compiler import targets
from compiler.bundle import files
from compiler.capabilities import verification
from compiler.errors import CompileError, ImportFailed, LoadError, UnknownTarget, VerifyError
from compiler.ir.model_file import read_model
from compiler.isolation.child import run_child
from compiler.isolation.messages import CompileJob, Event, InspectJob, StageStarted
from compiler.isolation.step import run_task
from compiler.verify import report as verify
from relaxd.contract.manifest import Manifest
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from relaxd.errors import DeclarationError
from tests.compiler.graphs import WIDTH, add_and_divide, sigmoid, unsupported, vanishing

pytestmark = pytest.mark.slow

DIMS = {"batch": (1, 8)}
QUICK = CompileOptions(verify=False, profile=False)


def build(output: Path, model: Any = None, **settings: Any) -> Manifest:
    return compiler.compile_model(
        model or add_and_divide(), output=output, **{"dims": DIMS, **settings}
    )


def failing(
    output: Path, kind: type[CompileError], model: Any = None, **settings: Any
) -> CompileError:
    with pytest.raises(kind) as caught:
        build(output, model, **settings)
    assert not output.exists()
    assert list(output.parent.glob(".*partial")) == []
    return caught.value


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest, list[Event]]:
    events: list[Event] = []
    output = tmp_path_factory.mktemp("build") / "out"
    return output, build(output, on_event=events.append), events


def report(output: Path, name: str) -> Any:
    return json.loads((output / name).read_text())


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
    assert {path.name for path in output.iterdir()} == {"manifest.json", *manifest.files}
    assert {
        "model.so",
        "libtvm_runtime.so",
        "profile.json",
        "numerics.json",
        "LICENSES",
    } <= manifest.files.keys()


def test_the_manifest_says_what_was_built(built: tuple[Path, Manifest, list[Event]]) -> None:
    _, manifest, _ = built
    assert [spec.text for spec in manifest.inputs] == [f"float32[batch,{WIDTH}]"]
    assert (manifest.target["name"], manifest.target["status"]) == ("native", "executed")
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


def test_the_profile_measures(built: tuple[Path, Manifest, list[Event]]) -> None:
    profile = report(built[0], "profile.json")
    assert {point["label"] for point in profile["points"]} == {"min", "opt", "max"}
    assert all(
        0 < point["median_ms"] <= point["p95_ms"] and point["runs"] >= 3
        for point in profile["points"]
    )
    assert profile["library_bytes"] == (built[0] / "model.so").stat().st_size
    assert profile["load_ms"] > 0
    assert profile["peak_rss_bytes"] > 10 << 20
    assert any("add" in row["name"] for row in profile["operators"]["rows"])


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
    assert [kernel["family"] for kernel in profile["kernels"]] == ["generic"]


def test_large_weights_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    manifest = build(tmp_path / "out", add_and_divide(rows=64), dims={"batch": 64})
    assert len(manifest.weights) == 2
    assert manifest.files["weights.bin"].size >= 2 * 64 * WIDTH * 4
    assert manifest.files["model.so"].size < 64 << 10


def test_a_target_beyond_this_machine_is_compiled_and_says_so(tmp_path: Path) -> None:
    if verification(targets.resolve("x86-64-v4")) is targets.TargetStatus.EXECUTED:
        pytest.skip("this machine runs x86-64-v4")
    manifest = build(tmp_path / "out", target="x86-64-v4")
    assert manifest.target["status"] == "compiled_only"
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "not_run"
    assert "avx512f" in numerics["reason"]


def test_own_samples_are_tried_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((3, WIDTH), np.float32))
    build(tmp_path / "out", samples=tmp_path / "mine.npz")
    assert report(tmp_path / "out", "numerics.json")["points"][0] == {
        "label": "sample",
        "dims": {"batch": 3},
    }


def test_bad_samples_fail_at_verify(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((3, WIDTH), np.float64))
    error = failing(tmp_path / "out", VerifyError, samples=tmp_path / "mine.npz")
    assert (error.code, error.failure.stage) == ("verify.bad_samples", Stage.VERIFY)


def test_numbers_that_are_off_are_never_published(tmp_path: Path) -> None:
    error = failing(tmp_path / "out", VerifyError, sigmoid(), options={"atol": 0.0, "rtol": 0.0})
    assert error.code == "verify.mismatch"
    assert error.failure.details["numerics"]["outputs"][0]["max_abs"] > 0


def test_an_unsupported_operator_is_named(tmp_path: Path) -> None:
    error = failing(tmp_path / "out", ImportFailed, unsupported())
    assert (error.code, error.failure.op) == ("import.unsupported_op", "RandomNormalLike")


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


def test_a_library_that_crashes_fails_verify(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    """The bundle is another: its library was replaced by one that crashes as it is opened."""
    from compiler.link import library
    from compiler.toolchain import zig
    from compiler.verify.inputs import Signature, prepare
    from compiler.verify.points import points

    output, manifest, _ = built
    (tmp_path / "crash.c").write_text(
        "__attribute__((constructor)) static void crash(void) { *(volatile int *)0 = 1; }\n"
    )
    broken = tmp_path / "bundle"
    broken.mkdir()
    for name in manifest.files:
        (broken / name).write_bytes((output / name).read_bytes())
    zig.compile_with_zig(
        "-c",
        "-o",
        str(tmp_path / "crash.o"),
        str(tmp_path / "crash.c"),
        triple=targets.resolve("native").platform.linker,
    )
    library.link_objects([tmp_path / "crash.o"], broken / "model.so", targets.resolve("native"))
    files.seal(broken, manifest)
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, tmp_path, 1 << 20)
    assert [trial.point for trial in trials.chosen] == list(
        points(manifest.inputs, manifest.dims, 0)
    )
    with pytest.raises(VerifyError, match="SIGSEGV") as caught:
        verify.verify(
            broken,
            verify.Reference(tmp_path / "m.onnx", {}),
            signature,
            trials,
            CompileOptions(),
            tmp_path,
            verify.Budget(),
        )
    assert caught.value.code == "verify.crashed"


def test_points_beyond_the_byte_budget_are_listed(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    from compiler.verify.inputs import Signature, prepare

    manifest = dataclasses.replace(built[1])
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, tmp_path, 4 * WIDTH)
    assert [trial.point.label for trial in trials.chosen] == ["min"]
    assert "max" in [item.point.label for item in trials.left_out]
    assert all("MiB" in item.reason for item in trials.left_out)


def test_the_other_reference_answers_where_onnxruntime_cannot(tmp_path: Path) -> None:
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    from compiler.verify import npz

    npz.write(tmp_path / "in", {"x": np.ones((2, WIDTH), np.float32)})
    results = []
    for engine in ("onnxruntime", "onnx.reference"):
        point = {"index": 0, "inputs": str(tmp_path / "in"), "outputs": str(tmp_path / engine)}
        spec = {
            "engine": engine,
            "model": str(tmp_path / "m.onnx"),
            "consts": {},
            "seconds": 60,
            "points": [point],
        }
        outcome = run_task(
            "compiler.verify.reference.onnx",
            spec,
            tmp_path / f"{engine}.records",
            seconds=60,
            memory_bytes=4 << 30,
        )
        assert outcome.records[0]["engine"].startswith(engine)
        results.append(npz.read(tmp_path / engine)["y"])
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_a_reference_that_cannot_be_had_is_said_so(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    from compiler.verify.inputs import Signature, prepare

    (tmp_path / "m.onnx").write_bytes(b"nonsense")
    manifest = built[1]
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, tmp_path, 1 << 20)
    with pytest.raises(VerifyError, match="the reference answered at no point") as caught:
        verify.verify(
            built[0],
            verify.Reference(tmp_path / "m.onnx", {}),
            signature,
            trials,
            CompileOptions(),
            tmp_path,
            verify.Budget(),
        )
    assert caught.value.code == "verify.nothing_ran"
    assert len(caught.value.failure.details["left_out"]) == len(trials.chosen)


def test_without_verification_a_build_is_unverified(tmp_path: Path) -> None:
    manifest = build(tmp_path / "out", options=QUICK)
    assert manifest.target["status"] == "unverified"
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "not_run"


def test_a_build_that_compared_nothing_is_not_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(builder, "_VERIFY", verify.Budget(memory_bytes=1))
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    request = CompileRequest.of(dims=DIMS).to_json()
    job = CompileJob(str(tmp_path / "m.onnx"), request, "native", str(tmp_path / "out"), "m")
    with pytest.raises(VerifyError) as caught:
        builder.build(job)
    assert caught.value.code == "verify.nothing_ran"
    assert not (tmp_path / "out").exists()


def test_outputs_too_small_to_prove_anything_fail(tmp_path: Path) -> None:
    tiny = vanishing()
    with pytest.raises(VerifyError, match="no output proves anything") as caught:
        build(tmp_path / "out", tiny)
    assert caught.value.code == "verify.nothing_proven"


def test_a_dim_without_a_maximum_says_how_far_it_was_verified(tmp_path: Path) -> None:
    build(tmp_path / "out", dims={"batch": "1:"})
    numerics = report(tmp_path / "out", "numerics.json")
    top = numerics["verified_up_to"]["batch"]
    warning = f"batch has no maximum: verified up to {top}; declare batch=1:N"
    assert numerics["warnings"] == [warning]


def test_redeclared_inputs_reach_the_reference_without_their_old_shape(tmp_path: Path) -> None:
    fixed = add_and_divide()
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    manifest = build(
        tmp_path / "out", fixed, inputs={"x": f"float32[n,{WIDTH}]"}, dims={"n": (2, 5)}
    )
    assert [spec.text for spec in manifest.inputs] == [f"float32[n,{WIDTH}]"]
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "passed"


def test_inspect_reports_without_compiling(tmp_path: Path) -> None:
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    found = run_child(InspectJob(str(tmp_path / "m.onnx"), CompileRequest.of(dims=DIMS).to_json()))
    assert isinstance(found, dict)
    assert found


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


def test_indices_are_drawn_within_what_they_index(tmp_path: Path) -> None:
    """Indices are drawn within what they index: any other would fail in the reference, and be left
    out.
    """
    table = numpy_helper.from_array(
        np.random.default_rng(0).random((5, WIDTH), np.float32), "table"
    )
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "seq", WIDTH])],
        [table],
    )
    lookup = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    build(
        tmp_path / "out", lookup, dims={"batch": (1, 4), "seq": (1, 40)}, options={"profile": False}
    )
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["left_out"] == []
