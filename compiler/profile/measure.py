"""Measures a new library in a process of its own: latency a shape, load time, memory, time an
operator.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compiler.errors import ProfileError, summary
from compiler.isolation.memory import read_peak_memory
from compiler.isolation.step import OnRecords, Outcome, Record, TaskLimits, run_task, serve
from compiler.profile.kernels import operators
from compiler.profile.machine import machine
from compiler.profile.timing import alternating
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Trial, Trials
from compiler.verify.sides import FirstCalls
from compiler.verify.time_budget import TimeBudget
from relaxd.errors import ExecutionError

Inputs = Mapping[str, Any]
Call = Callable[[Inputs], Any]
OnPoints = Callable[[int, int], None]
_OF_POINTS = ("point", "left_out", "asked")
_POINT_LABELS = ("sample", "min", "opt", "max")
_NO_GRID, _NO_CALLS = Trials((), ()), FirstCalls()
_LONG_SECONDS = 0.5
"""A call that took so long is not made again but at the favoured point, not even where verification
made it, in another process: noise is a small part of it.
"""
_GRACE_SECONDS = 18.0
"""Beyond its time before the process is ended: on a busy machine all that it does takes longer."""
_WATCHED_RUNS, _SHORT_MS = 5, 40.0
"""Of calls that are shorter, so many are watched, and the fastest counts."""
_REFERENCE_SECONDS, _FAVOURED_SECONDS = 0.5, 4.0
"""What a call of the reference may be expected to take at most points, and at the favoured one."""
_REFERENCE_SHARE = 0.5
"""Of the time that is left for a point of a grid what that call may be expected to take: MiniLM at
64 x 512 tokens took twice what its ratio at 10 x 31 promised.
"""


def not_run(reason: str) -> Record:
    """The report of a profile that was not taken."""
    return {"measured": False, "reason": reason}


@dataclass(frozen=True)
class Limits:
    """Wall-clock seconds for the usual points and for those of a grid, and bytes of private
    memory.
    """

    seconds: float
    memory_bytes: int
    grid_seconds: float = 0.0


def profile(
    bundle: Path,
    trials: Trials,
    folder: Path,
    limits: Limits,
    *,
    earlier: FirstCalls = _NO_CALLS,
    reference: Record | None = None,
    grid: Trials = _NO_GRID,
    on_points: OnPoints = lambda done, total: None,
) -> Record:
    """The times, within the limits; raises ProfileError when the library crashes.

    earlier: the library's calls at the trials in another process of this machine; those that took
    long are not made again. reference: `model` and `consts` for ONNX Runtime, which is timed beside
    the library; None where it is not the model's reference. grid: further points, within a budget
    of their own. on_points: gets how many points are timed or left out, and how many there are.
    """
    usual = [trial for trial in trials.chosen if trial.point.label in _POINT_LABELS]
    known = [dict(trial.point.dims) for trial in usual]
    further = [trial for trial in grid.chosen if dict(trial.point.dims) not in known]
    chosen = [*usual, *further]
    spec = {
        "bundle": str(bundle),
        "seconds": limits.seconds,
        "reference": reference,
        "peak_rss_bytes": earlier.peak_rss_bytes or 0,
        "points": [_wanted(trial, earlier.seconds.get(trial.index)) for trial in usual],
        "grid": [_wanted(trial) for trial in further],
        "grid_seconds": limits.grid_seconds,
    }
    # The task keeps to its budget by itself; the limit here is for a call that does not come back.
    most = 2 * limits.seconds + (2 * limits.grid_seconds if further else 0) + _GRACE_SECONDS
    settled: set[str] = set()

    def count(records: Sequence[Record]) -> None:
        of_points = [record.get("point") or record.get("left_out") for record in records]
        settled.update(point["label"] for point in of_points if point)
        on_points(len(settled), len(chosen))

    count([])
    outcome = _run_beside_crashes(spec, folder, TaskLimits(limits.memory_bytes, most), count)
    if not (outcome.ended or outcome.late):
        raise ProfileError(
            f"the library's process {outcome.reason}", reason="crashed", output=outcome.output
        )
    merged: Record = {}
    for record in outcome.records:
        merged.update(record)
    points, left_out = (
        [record[key] for record in outcome.records if key in record]
        for key in ("point", "left_out")
    )
    reported = {point["label"] for point in (*points, *left_out)}
    unreached = [
        {**trial.point.to_json(), "reason": outcome.reason}
        for trial in chosen
        if trial.point.label not in reported
    ]
    facts = {key: value for key, value in merged.items() if key not in _OF_POINTS}
    not_tried = [*left_out, *unreached, *(skipped.to_json() for skipped in grid.left_out)]
    return {"measured": True, **facts, "points": points, "left_out": not_tried}


def _run_beside_crashes(
    spec: Record, folder: Path, limits: TaskLimits, on_records: OnRecords
) -> Outcome:
    """Run the task, and once more without the reference at each point where its process crashed
    with it: that of ONNX Runtime does at images of one pixel, where layers of GoogLeNet are empty.
    """
    crashed: dict[str, str] = {}
    while True:
        records = folder / f"profile.{len(crashed)}.jsonl"
        arguments = {**spec, "crashed": crashed}
        outcome = run_task(
            "compiler.profile.measure", arguments, records, limits, on_records=on_records
        )
        asked = [record["asked"] for record in outcome.records if "asked" in record]
        timed = {record["point"]["label"] for record in outcome.records if "point" in record}
        if outcome.ended or outcome.late or not asked or asked[-1] in timed | crashed.keys():
            return outcome
        crashed[asked[-1]] = f"its process {outcome.reason}"


def _wanted(trial: Trial, taken: float | None = None) -> Record:
    """taken: seconds of a call before, None for none."""
    known = {"taken": taken} if taken and taken >= _LONG_SECONDS else {}
    return {**trial.to_spec("profile"), **trial.point.to_json(), **known}


def measure(spec: Record, record: Callable[[Record], None]) -> None:
    """spec: bundle, seconds, grid_seconds, peak_rss_bytes of another process, and points and grid
    as `{label, dims, inputs}`, with `taken` where a call's seconds are known; crashed: by label,
    why the reference is not asked at a point. Records what it has as soon as it has it.
    """
    from relaxd.loader.opening import load_library

    bundle = Path(spec["bundle"])
    measured_at = datetime.now(UTC).isoformat(timespec="seconds")
    started = time.perf_counter()
    model = load_library(bundle)
    load_ms = round((time.perf_counter() - started) * 1e3, 4)
    record({"measured_at": measured_at, "load_ms": load_ms, "machine": machine(model.threads)})
    record({"library_bytes": (bundle / model.manifest.library).stat().st_size})
    points = _within_budget(model, spec["points"], TimeBudget(spec["seconds"] / 2), record)
    record({"peak_rss_bytes": max(read_peak_memory(), spec["peak_rss_bytes"])})
    reference = _reference(spec.get("reference"), model.threads, record) if points else None
    stopwatch = _Stopwatch(model, reference, spec["crashed"], record)
    deadline = time.perf_counter() + spec["seconds"] / 2
    for position, admitted in enumerate(points):
        share = (deadline - time.perf_counter()) / (len(points) - position)
        is_favoured = admitted.point["label"] == "opt" or len(spec["points"]) == 1
        _measure_usual(stopwatch, admitted, share, record, is_favoured=is_favoured)
    _measure_grid(stopwatch, spec["grid"], spec["grid_seconds"], record)


def _measure_usual(
    stopwatch: "_Stopwatch",
    admitted: "_Admitted",
    seconds: float,
    record: Callable[[Record], None],
    *,
    is_favoured: bool,
) -> None:
    """Times a point; at the one that people look at first also each kernel."""
    point = _name_all(admitted.point)
    is_once = admitted.taken >= _LONG_SECONDS and not is_favoured
    patience = _FAVOURED_SECONDS if is_favoured else _REFERENCE_SECONDS
    timed = stopwatch.time(admitted, 0.0 if is_once else seconds, patience)
    record({"point": {**point, **timed}})
    if is_favoured:
        runs = _WATCHED_RUNS if timed["median_ms"] < _SHORT_MS else 1
        record({"operators": {**point, **operators(stopwatch.model, admitted.inputs, runs)}})


def _measure_grid(
    stopwatch: "_Stopwatch",
    points: Sequence[Record],
    seconds: float,
    record: Callable[[Record], None],
) -> None:
    """One point after the other, the cheapest first: the inputs of all might be too many."""
    budget = TimeBudget(seconds)
    for position, point in enumerate(points):
        share = budget.left / (len(points) - position)
        for admitted in _within_budget(stopwatch.model, [point], budget, record):
            patience = max(_REFERENCE_SHARE * share, _REFERENCE_SECONDS)
            timed = stopwatch.time(admitted, share, patience)
            record({"point": {**_name_all(admitted.point), **timed}})


def _within_budget(
    model: Any, points: Sequence[Record], budget: TimeBudget, record: Callable[[Record], None]
) -> list["_Admitted"]:
    """The points that the model admits and at which a call ends in time; records the others."""
    admitted: list[_Admitted] = []
    for point in points:
        if "taken" in point:
            admitted.append(
                _Admitted(point, array_file.read(Path(point["inputs"])), point["taken"])
            )
            continue
        if objection := budget.objection(point["effort"]):
            record({"left_out": {**_name_all(point), "reason": objection}})
            continue
        inputs = array_file.read(Path(point["inputs"]))
        started = time.perf_counter()
        try:
            model.run(inputs)
        # Declared ranges may hold sizes that the model itself refuses, as verification does too.
        except ExecutionError as error:
            record({"left_out": {**_name_all(point), "reason": summary(error)}})
            continue
        taken = time.perf_counter() - started
        budget.took(point["effort"], taken)
        admitted.append(_Admitted(point, inputs, taken))
    return admitted


def _name_all(point: Record) -> Record:
    return {"label": point["label"], "dims": point["dims"]}


def _reference(
    spec: Record | None, threads: int, record: Callable[[Record], None]
) -> tuple[str, Call] | None:
    """The name of ONNX Runtime and a function of inputs that runs it; records why there is none."""
    if spec is None:
        return None
    from compiler.verify.reference.onnx import OnnxRuntime

    try:
        engine = OnnxRuntime(spec["model"], threads=threads, beside=True)
    # Whatever it is that the reference does not take is no fault of the library.
    except Exception as error:
        record({"no_reference": summary(error)})
        return None
    return engine.name, lambda inputs: engine.run(inputs, spec["consts"])


@dataclass(frozen=True)
class _Admitted:
    """A point that the model admits, its inputs, and the seconds of its first call there."""

    point: Record
    inputs: Inputs
    taken: float


class _Stopwatch:
    """Times the library, and the reference beside it where there is one."""

    def __init__(
        self,
        model: Any,
        reference: tuple[str, Call] | None,
        crashed: Mapping[str, str],
        record: Callable[[Record], None],
    ) -> None:
        self.model = model
        self._reference, self._crashed = reference, crashed
        self._record = record
        self._slower = 1.0
        """How many times the library's time the reference took at the last point."""

    def time(self, admitted: _Admitted, seconds: float, patience: float) -> Record:
        """The library's timing, and that of a reference whose call is expected to take `patience`
        at most.
        """
        inputs, first = admitted.inputs, {"library": admitted.taken}
        calls: dict[str, Any] = {"library": lambda: self.model.run(inputs)}
        if self._reference is None:
            return alternating(calls, seconds, first=first)["library"]
        name, run = self._reference
        objection = self._objection(admitted, patience)
        started = time.perf_counter()
        try:
            if objection is None:
                self._record({"asked": admitted.point["label"]})
                run(inputs)
        except Exception as error:
            objection = summary(error)
        if objection is not None:
            timed = alternating(calls, seconds, first=first)
            return {**timed["library"], "no_reference": objection}
        first["reference"] = time.perf_counter() - started
        calls["reference"] = lambda: run(inputs)
        timed = alternating(calls, seconds - first["reference"], first=first)
        library, reference = timed["library"], timed["reference"]
        self._slower = reference["min_ms"] / (library["min_ms"] or 1.0)
        engine = {"engine": name, "threads": self.model.threads}
        return {**library, "reference": {**reference, **engine}}

    def _objection(self, admitted: _Admitted, patience: float) -> str | None:
        if reason := self._crashed.get(admitted.point["label"]):
            return reason
        expected = self._slower * admitted.taken
        if expected <= patience:
            return None
        return f"it would take about {expected:.1f} s, more than the profile has time for"


if __name__ == "__main__":
    serve(measure)
