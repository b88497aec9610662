"""Profiles of small builds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler import build
from compiler.errors import CompileError, ProfileError
from compiler.isolation.messages import CompileJob
from compiler.isolation.step import Outcome
from compiler.profile import measure
from compiler.profile.measure import Limits, profile
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Trial, Trials
from compiler.verify.inputs.points import Point
from compiler.verify.sides import FirstCalls
from relaxd.contract.dims.axes import Axis
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from relaxd.errors import EstimateError
from relaxd.loader.report import report_of
from relaxd.reports.trace import trace
from tests.compiler.graphs import add_and_divide
from tests.support.models.small import perceptron


def bundle_of(folder: Path, model: Any, **declared: Any) -> Path:
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    request = CompileRequest.of(**declared).to_json()
    output = folder / "out"
    build.build(CompileJob(str(folder / "m.onnx"), request, "native", str(output), "m"))
    return output


UNCHECKED = {"verify": False}
OFF = {"verify": False, "profile": False}


def test_sizes_that_the_model_refuses_are_left_out(tmp_path: Path) -> None:
    """The model adds eight rows to `batch` rows, so that it takes one or eight."""
    output = bundle_of(tmp_path, add_and_divide(rows=8), dims={"batch": (1, 9)}, options=UNCHECKED)
    profile = json.loads((output / "profile.json").read_text())
    assert {point["dims"]["batch"] for point in profile["points"]} == {1}
    refused = profile["left_out"]
    assert 9 in {point["dims"]["batch"] for point in refused}
    assert all("operands do not broadcast" in point["reason"] for point in refused)


def test_a_grid_is_timed_and_others_are_estimated(tmp_path: Path) -> None:
    """From a model to a number for a size that nobody measured, with the kernels' work."""
    grid = {"batch": [1, 4, 16], "seq": [1, 16, 64]}
    options = {**UNCHECKED, "profile": {"grid": grid}}
    dims = {"batch": (1, 16), "seq": (1, 128)}
    report = report_of(bundle_of(tmp_path, perceptron(), dims=dims, options=options))
    profiled = report.profile
    assert profiled is not None
    timed = [tuple(point.dims.values()) for point in profiled.points]
    assert len(timed) == len(set(timed))
    assert set(timed) >= {(1, 1), (4, 16), (16, 64), (16, 128)}
    assert profiled.cost is not None
    assert profiled.cost.points == len(timed)
    assert profiled.cost.high == {"batch": 16, "seq": 128}
    largest = max(point.median_ms for point in profiled.points)
    assert 0 < profiled.estimate({"batch": 7, "seq": 33}).ms < largest
    with pytest.raises(EstimateError, match="seq=129"):
        profiled.estimate({"batch": 7, "seq": 129})
    assert profiled.machine.peak_gflops
    assert profiled.machine.peak_gb_s
    for point in profiled.points:
        assert point.flops == sum(Axis(k.flops).evaluate(point.dims) for k in report.kernels)
    assert profiled.operators is not None
    computed = [row for row in profiled.operators.rows if "matmul" in (row.family or "")]
    assert computed
    assert all(row.flops and row.bytes and row.gflops and row.bound for row in computed)
    events = [event for event in trace(report)["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == [c.name for c in profiled.operators.timeline]
    assert {row.name for row in computed} <= {event["name"] for event in events}


def test_a_grid_beyond_the_declared_range_fails_before_anything_is_compiled(
    tmp_path: Path,
) -> None:
    options = {"profile": {"grid": {"batch": [1, 9]}}}
    with pytest.raises(CompileError, match="batch=9") as refused:
        bundle_of(tmp_path, add_and_divide(), dims={"batch": (1, 8)}, options=options)
    assert refused.value.failure.stage is Stage.IMPORT
    assert refused.value.failure.code == "request.invalid"
    assert refused.value.failure.field == "options.profile.grid.batch"


def test_a_long_call_of_verification_is_not_made_again(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, perceptron(), dims={"batch": (1, 4), "seq": 8}, options=OFF)
    array_file.write(tmp_path / "0.inputs.arrays", {"x": np.ones((4, 8, 32), np.float32)})
    trial = Trial(0, Point("max", {"batch": 4}), tmp_path / "0.inputs.arrays", 1)
    earlier = FirstCalls({0: 7.0}, 1 << 40)
    trials = Trials((trial,), ())
    measured = profile(bundle, trials, tmp_path, Limits(4.0, 4 << 30), earlier=earlier)
    (point,) = measured["points"]
    assert (point["median_ms"], point["runs"], point["stable"]) == (7000, 1, False)
    assert measured["peak_rss_bytes"] == 1 << 40


def test_a_long_call_is_made_again_at_the_favoured_point_alone(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, perceptron(), dims={"batch": (1, 4), "seq": 8}, options=OFF)
    trials = []
    for index, (label, batch) in enumerate({"min": 1, "opt": 2, "max": 4}.items()):
        path = tmp_path / f"{index}.inputs.arrays"
        array_file.write(path, {"x": np.ones((batch, 8, 32), np.float32)})
        trials.append(Trial(index, Point(label, {"batch": batch}), path, 1))
    earlier = FirstCalls({1: 0.6, 2: 0.6})
    chosen = Trials(tuple(trials), ())
    measured = profile(bundle, chosen, tmp_path, Limits(60.0, 4 << 30), earlier=earlier)
    least, favoured, most = measured["points"]
    assert least["runs"] > 1
    assert favoured["runs"] > 1
    assert (most["median_ms"], most["runs"]) == (600, 1)


def test_a_reference_that_crashes_is_left_out_at_that_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []
    died = Outcome([{"point": {"label": "min"}}, {"asked": "opt"}], False, "died of SIGFPE")

    def run(module: str, spec: dict[str, Any], *arguments: Any, **limits: Any) -> Outcome:
        asked.append(dict(spec["crashed"]))
        return died if "opt" not in spec["crashed"] else Outcome([], True)

    monkeypatch.setattr(measure, "run_task", run)
    nothing = Trials((), ())
    assert profile(tmp_path, nothing, tmp_path, Limits(1, 1))["measured"]
    assert asked == [{}, {"opt": "its process died of SIGFPE"}]


def test_a_library_that_crashes_beside_no_reference_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = Outcome([{"asked": "min"}, {"point": {"label": "min"}}], False, "died of SIGSEGV")
    monkeypatch.setattr(measure, "run_task", lambda *arguments, **limits: died)
    with pytest.raises(ProfileError, match="died of SIGSEGV"):
        profile(tmp_path, Trials((), ()), tmp_path, Limits(1, 1))
