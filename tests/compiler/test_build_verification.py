"""Verification of whole builds: numbers, points, references."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxd
from compiler import build as builder
from compiler import targets
from compiler.building import verification
from compiler.bundle import files
from compiler.errors import VerifyError
from compiler.isolation.messages import CompileJob, Event
from compiler.isolation.step import TaskLimits, run_task
from compiler.verify import report as verify
from compiler.verify import sides
from compiler.verify.ahead import Ahead
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from relaxd.loader.bundles.bundle import read_manifest
from tests.compiler.building import DIMS, QUICK, build, failing, report
from tests.compiler.graphs import WIDTH, add_and_divide, endless, sigmoid, vanishing

pytestmark = pytest.mark.slow

UNTIMED = {"profile": False}


def test_own_samples_are_tried_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((3, WIDTH), np.float32))
    build(tmp_path / "out", samples=tmp_path / "mine.npz", options=UNTIMED)
    assert report(tmp_path / "out", "numerics.json")["points"][0] == {
        "label": "sample",
        "dims": {"batch": 3},
    }


def test_what_is_asked_while_the_library_is_compiled_is_what_is_asked_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(add_and_divide(), tmp_path / "model.onnx")
    request, waited = CompileRequest.of(dims=DIMS, options=UNTIMED), []
    wait = Ahead.wait_for_answer
    monkeypatch.setattr(Ahead, "wait_for_answer", lambda a: waited.append(a) or wait(a))
    for name, largest in (("ahead", 1 << 20), ("behind", 0)):
        monkeypatch.setattr(verification, "_LARGEST_AHEAD", largest)
        job = CompileJob(
            model=str(tmp_path / "model.onnx"),
            request=request.to_json(),
            target="native",
            output=str(tmp_path / name),
            model_name="model",
        )
        builder.build(job)
    one, other = ((tmp_path / name / "numerics.json").read_bytes() for name in ("ahead", "behind"))
    assert len(waited) == 1
    assert one == other


def test_bad_samples_fail_at_verify(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((3, WIDTH), np.float64))
    error = failing(tmp_path / "out", VerifyError, samples=tmp_path / "mine.npz")
    assert (error.code, error.failure.stage) == ("verify.bad_samples", Stage.VERIFY)


def test_numbers_that_are_off_are_never_published(tmp_path: Path) -> None:
    error = failing(tmp_path / "out", VerifyError, sigmoid(), options={"atol": 0.0, "rtol": 0.0})
    assert error.code == "verify.mismatch"
    assert error.failure.details["numerics"]["outputs"][0]["max_abs"] > 0


def test_a_library_that_crashes_fails_verify(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    """The bundle is another: its library was replaced by one that crashes as it is opened."""
    from compiler.link import library
    from compiler.toolchain import zig
    from compiler.verify.inputs.inputs import Signature, prepare
    from compiler.verify.inputs.points import points

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
    files.seal(broken, dataclasses.replace(manifest, files={}))
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, tmp_path, 1 << 20)
    assert [trial.point for trial in trials.chosen] == list(
        points(manifest.inputs, manifest.dims, 0)
    )
    with pytest.raises(VerifyError, match="SIGSEGV") as caught:
        verify.verify(
            broken,
            sides.Reference(tmp_path / "m.onnx", {}),
            signature,
            trials,
            CompileOptions(),
            tmp_path,
            sides.Budget(),
        )
    assert caught.value.code == "verify.crashed"


def test_points_beyond_the_byte_budget_are_listed(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    from compiler.verify.inputs.inputs import Signature, prepare

    manifest = dataclasses.replace(built[1])
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, tmp_path, 4 * WIDTH)
    assert [trial.point.label for trial in trials.chosen] == ["min"]
    assert "max" in [item.point.label for item in trials.left_out]
    assert all("MiB" in item.reason for item in trials.left_out)


def test_the_other_reference_answers_where_onnxruntime_cannot(tmp_path: Path) -> None:
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    from compiler.verify.inputs import array_file

    array_file.write(tmp_path / "in", {"x": np.ones((2, WIDTH), np.float32)})
    results = []
    for engine in ("onnxruntime", "onnx.reference"):
        files = {"inputs": str(tmp_path / "in"), "outputs": str(tmp_path / engine)}
        point = {"index": 0, "effort": 0, **files}
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
            TaskLimits.of_work(60, 4 << 30),
        )
        assert outcome.records[0]["engine"].startswith(engine)
        results.append(array_file.read(tmp_path / engine)["y"])
    ours, theirs = results
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_reference_that_cannot_be_had_is_said_so(
    built: tuple[Path, Manifest, list[Event]], tmp_path: Path
) -> None:
    from compiler.verify.inputs.inputs import Signature, prepare

    (tmp_path / "m.onnx").write_bytes(b"nonsense")
    manifest = built[1]
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, tmp_path, 1 << 20)
    with pytest.raises(VerifyError, match="the reference answered at no point") as caught:
        verify.verify(
            built[0],
            sides.Reference(tmp_path / "m.onnx", {}),
            signature,
            trials,
            CompileOptions(),
            tmp_path,
            sides.Budget(),
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
    monkeypatch.setattr(verification, "BUDGET", sides.Budget(memory_bytes=1))
    onnx.save(add_and_divide(), tmp_path / "m.onnx")
    request = CompileRequest.of(dims=DIMS).to_json()
    job = CompileJob(str(tmp_path / "m.onnx"), request, "native", str(tmp_path / "out"), "m")
    with pytest.raises(VerifyError) as caught:
        builder.build(job)
    assert caught.value.code == "verify.nothing_ran"
    assert not (tmp_path / "out").exists()


RESIZES = {
    "crop": (
        """(float[n,2,h,w] x, float[8] roi) => (float[n,2,7,5] y) <int64[2] hw = {7, 5}> {
            space = Shape<start = 0, end = 2>(x)
            size = Concat<axis = 0>(space, hw)
            y = Resize<mode = "linear", extrapolation_value = 9.0,
                coordinate_transformation_mode = "tf_crop_and_resize">(x, roi, , size)
        }""",
        {"n": (1, 2), "h": (1, 12), "w": (1, 12)},
    ),
    "nearest": (
        """(float[n,2,h,w] x) => (float[n,2,p,q] y) <float[4] scales = {1, 1, 2, 0.6}> {
            y = Resize<mode = "nearest", nearest_mode = "round_prefer_floor",
                coordinate_transformation_mode = "align_corners">(x, , scales)
        }""",
        {"n": (1, 2), "h": (1, 20), "w": (2, 21)},
    ),
}


@pytest.mark.parametrize("name", list(RESIZES))
def test_a_reference_that_float64_shows_to_be_wrong_refuses_no_build(
    name: str, tmp_path: Path
) -> None:
    """ONNX Runtime 1.31 departs from the specification where an axis keeps its extent."""
    text, dims = RESIZES[name]
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {text}')
    build(tmp_path / "out", model, dims=dims, options=UNTIMED)
    numerics = report(tmp_path / "out", "numerics.json")
    assert (numerics["verdict"], numerics["float64"]) == ("reference_inexact", "float64")
    (output,) = numerics["outputs"]
    assert output["max_abs"] > 0.1
    assert output["evidence"]["library_error"] < 1e-5 < output["evidence"]["reference_error"]


def test_a_tolerance_of_the_request_that_is_no_tolerance_is_said_so(tmp_path: Path) -> None:
    """A library with another bias passes by atol=10, and its verdict says why."""
    bundle = tmp_path / "out"
    build(bundle, add_and_divide(), options=UNTIMED | {"atol": 10.0})
    numerics = report(bundle, "numerics.json")
    assert numerics["verdict"] == "passed"
    verification = _verify(bundle, _biased(), tmp_path, CompileOptions(atol=10.0))
    assert verification["verdict"] == "tolerated"
    with pytest.raises(verify.Mismatch, match="float64 agrees with the reference") as caught:
        _verify(bundle, _biased(), tmp_path, CompileOptions())
    assert "atol" not in str(caught.value.hint)
    with pytest.raises(verify.Mismatch) as strict:
        _verify(bundle, _biased(), tmp_path, CompileOptions(atol=1e-3))
    assert "raise options.atol and options.rtol, or leave them out" in str(strict.value.hint)


def test_another_shape_is_wrong_at_once_and_no_tolerance_is_hinted_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "out"
    build(bundle, add_and_divide(), options=UNTIMED)
    turned = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[batch,16] x) => (float[16,batch] y) '
        "{ y = Transpose<perm = [1, 0]>(x) }"
    )
    monkeypatch.setattr(verify, "perturb_in_turn", None)
    monkeypatch.setattr(verify, "evaluate", None)
    with pytest.raises(verify.Mismatch, match="where the reference has") as caught:
        _verify(bundle, turned, tmp_path, CompileOptions())
    assert "atol" not in str(caught.value.hint)


def _biased() -> onnx.ModelProto:
    model = add_and_divide()
    bias = numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(bias + np.float32(1), "w"))
    return model


def _verify(
    bundle: Path, model: onnx.ModelProto, folder: Path, options: CompileOptions
) -> dict[str, Any]:
    """The report of a bundle's verification beside another model."""
    from compiler.verify.inputs.inputs import Signature, prepare

    onnx.save(model, folder / "beside.onnx")
    manifest = read_manifest(bundle)
    signature = Signature(manifest.inputs, manifest.outputs, manifest.dims, {})
    trials = prepare(signature, None, 0, folder, 1 << 20)
    reference = sides.Reference(folder / "beside.onnx", {})
    return verify.verify(bundle, reference, signature, trials, options, folder, sides.Budget())


def test_outputs_too_small_to_prove_anything_fail(tmp_path: Path) -> None:
    tiny = vanishing()
    with pytest.raises(VerifyError, match="no output proves anything") as caught:
        build(tmp_path / "out", tiny)
    assert caught.value.code == "verify.nothing_proven"


def test_a_dim_without_a_maximum_says_how_far_it_was_verified(tmp_path: Path) -> None:
    build(tmp_path / "out", dims={"batch": "1:"}, options=UNTIMED)
    numerics = report(tmp_path / "out", "numerics.json")
    top = numerics["verified_up_to"]["batch"]
    warning = f"batch has no maximum: verified up to {top}; declare batch=1:N"
    assert numerics["warnings"] == [warning]


def test_redeclared_inputs_reach_the_reference_without_their_old_shape(tmp_path: Path) -> None:
    fixed = add_and_divide()
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    manifest = build(
        tmp_path / "out",
        fixed,
        inputs={"x": f"float32[n,{WIDTH}]"},
        dims={"n": (2, 5)},
        options=UNTIMED,
    )
    assert [spec.text for spec in manifest.inputs] == [f"float32[n,{WIDTH}]"]
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "passed"


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
    build(tmp_path / "out", lookup, dims={"batch": (1, 4), "seq": (1, 40)}, options=UNTIMED)
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["left_out"] == []


def test_a_loop_without_an_end_is_not_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reference does not return from it, and is ended with the budget."""
    monkeypatch.setattr(verification, "BUDGET", sides.Budget(seconds=4.0))
    (tmp_path / "m.onnx").write_bytes(endless().SerializeToString())
    request = CompileRequest.of(dims={"n": (1, 4)}).to_json()
    job = CompileJob(str(tmp_path / "m.onnx"), request, "native", str(tmp_path / "out"), "m")
    with pytest.raises(VerifyError) as caught:
        builder.build(job)
    assert caught.value.code == "verify.nothing_ran"
    assert not (tmp_path / "out").exists()


def test_both_sides_are_fed_the_same_random_numbers(tmp_path: Path) -> None:
    """Noise in a shape that only run time knows, as in text to speech; verification uses several
    seeds.
    """
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["found"], to=TensorProto.FLOAT),
        helper.make_node("RandomNormalLike", ["found"], ["noise"]),
        helper.make_node("Dropout", ["x", "", "training"], ["dropped"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH]),
        helper.make_tensor_value_info("training", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("noise", "dropped")]
    model = helper.make_model(
        helper.make_graph(nodes, "noisy", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    build(tmp_path / "out", model, options=UNTIMED)
    numerics = report(tmp_path / "out", "numerics.json")
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
    assert numerics["reference"].startswith("onnxruntime")
    noise, dropped = numerics["outputs"]
    assert noise["range"] > 2
    assert noise["max_abs"] < 2e-6
    assert dropped["max_abs"] < 1e-6
    loaded = relaxd.load(tmp_path / "out")
    x = {"x": np.ones((2, WIDTH), np.float32), "training": np.array(True)}
    first, again, other = (loaded.run({**x, **more}) for more in ({}, {}, {"relaxd.seed": 1}))
    np.testing.assert_array_equal(first["noise"], again["noise"])
    assert (first["noise"] != other["noise"]).all()


def test_the_reference_takes_and_gives_sequences(tmp_path: Path) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    nodes = [
        helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0),
        helper.make_node("SequenceInsert", ["x", "y"], ["z"]),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "sequences",
            [helper.make_value_info("x", kind)],
            [helper.make_value_info("z", kind)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    items = {"x_0": "float32[batch,3]", "x_1": "float32[2,3]"}
    build(tmp_path / "out", model, inputs=items, options=UNTIMED)
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith("onnxruntime")
    assert [output["name"] for output in numerics["outputs"]] == ["z_0", "z_1", "z_2"]


def test_lengths_and_masks_of_a_cache_agree_with_its_points(tmp_path: Path) -> None:
    from tests.compiler.ir.onnx.test_cache_inputs import builders_mask

    dims = {"n": (1, 3), "s": (1, 9), "p": (0, 12), "t": (1, 21)}
    build(tmp_path / "out", builders_mask(), dims=dims, options=UNTIMED)
    numerics = report(tmp_path / "out", "numerics.json")
    reached = {tuple(point["dims"][name] for name in "nspt") for point in numerics["points"]}
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
    assert {(1, 1, 0, 1), (1, 9, 0, 9), (3, 1, 12, 13)} <= reached
