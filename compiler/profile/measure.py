"""Measures a new library in a process of its own: latency a shape, load time, memory, time an
operator.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compiler.errors import ProfileError, summary
from compiler.isolation.step import Record, run_task, serve
from compiler.profile.machine import machine
from compiler.profile.timing import FEWEST_ROUNDS, WARM_UPS, alternating
from compiler.verify import npz
from compiler.verify.inputs import Trials
from compiler.verify.time_budget import TimeBudget
from relaxd.errors import ExecutionError

_OPERATORS_KEPT = 50
Inputs = Mapping[str, Any]
Call = Callable[[Inputs], Any]
_POINT_LABELS = ("sample", "min", "opt", "max")


def not_run(reason: str) -> Record:
    """The report of a profile that was not taken."""
    return {"measured": False, "reason": reason}


def profile(
    bundle: Path,
    trials: Trials,
    folder: Path,
    *,
    seconds: float,
    memory_bytes: int,
    watched: Path | None = None,
    reference: Record | None = None,
) -> Record:
    """The report, within a budget of wall-clock seconds; raises ProfileError when the library
    crashes.

    watched: for a library that needs no runtime, a build of it that reports its kernels.
    reference: `model` and `consts` for ONNX Runtime, which is timed beside the library; None where
    it is not the model's reference.
    """
    chosen = [trial for trial in trials.chosen if trial.point.label in _POINT_LABELS]
    spec = {
        "bundle": str(bundle),
        "seconds": seconds,
        "watched": str(watched) if watched is not None and watched.exists() else None,
        "reference": reference,
        "points": [{**trial.to_spec("profile"), **trial.point.to_json()} for trial in chosen],
    }
    # The task keeps to its budget by itself; the limit here is for a call that does not come back.
    outcome = run_task(
        "compiler.profile.measure",
        spec,
        folder / "profile.jsonl",
        seconds=2 * seconds + 10,
        memory_bytes=memory_bytes,
    )
    if not outcome.ended and "time budget" not in (outcome.reason or ""):
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
    heard = {point["label"] for point in (*points, *left_out)}
    unreached = [
        {**trial.point.to_json(), "reason": outcome.reason}
        for trial in chosen
        if trial.point.label not in heard
    ]
    facts = {key: value for key, value in merged.items() if key not in ("point", "left_out")}
    return {"measured": True, **facts, "points": points, "left_out": [*left_out, *unreached]}


def measure(spec: Record, record: Callable[[Record], None]) -> None:
    """spec: bundle, seconds, and points as `{label, dims, inputs}`; records what it has as soon as
    it has it.
    """
    from relaxd.loader.model import load

    bundle = Path(spec["bundle"])
    measured_at = datetime.now(UTC).isoformat(timespec="seconds")
    started = time.perf_counter()
    model = load(bundle)
    load_ms = _milliseconds(time.perf_counter() - started)
    record({"measured_at": measured_at, "load_ms": load_ms, "machine": machine(model.threads)})
    record({"library_bytes": (bundle / model.manifest.library).stat().st_size})
    points = _within_budget(model, spec["points"], TimeBudget(spec["seconds"] / 2), record)
    record({"peak_rss_bytes": _peak_memory()})
    reference = _reference(spec.get("reference"), model.threads, record) if points else None
    deadline = time.perf_counter() + spec["seconds"] / 2
    for position, (point, inputs) in enumerate(points):
        share = (deadline - time.perf_counter()) / (len(points) - position)
        record({"point": {**_named(point), **_latency(model, inputs, reference, share)}})
        if point["label"] == "opt" or len(spec["points"]) == 1:
            record(
                {
                    "operators": {
                        **_named(point),
                        "rows": _operators(bundle, inputs, spec.get("watched")),
                    }
                }
            )


def _within_budget(
    model: Any, points: Sequence[Record], budget: TimeBudget, record: Callable[[Record], None]
) -> list[tuple[Record, Inputs]]:
    """The points that the model admits and at which a few calls end in time, with their inputs;
    records the others.
    """
    found: list[tuple[Record, Inputs]] = []
    for point in points:
        inputs = npz.read(Path(point["inputs"]))
        if objection := budget.objection(inputs, runs=WARM_UPS + FEWEST_ROUNDS):
            record({"left_out": {**_named(point), "reason": objection}})
            continue
        started = time.perf_counter()
        try:
            model.run(inputs)
        # Declared ranges may hold sizes that the model itself refuses, as verification does too.
        except ExecutionError as error:
            record({"left_out": {**_named(point), "reason": summary(error)}})
            continue
        budget.took(inputs, time.perf_counter() - started)
        found.append((point, inputs))
    return found


def _named(point: Record) -> Record:
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


def _latency(model: Any, inputs: Inputs, reference: Any, seconds: float) -> Record:
    """The library's timing, and with a reference that takes the inputs also its."""
    calls: dict[str, Any] = {"library": lambda: model.run(inputs)}
    if reference is not None:
        name, run = reference
        try:
            run(inputs)
        except Exception as error:
            return {**alternating(calls, seconds)["library"], "no_reference": summary(error)}
        calls["reference"] = lambda: run(inputs)
    timed = alternating(calls, seconds)
    if "reference" not in timed:
        return timed["library"]
    engine = {"engine": name, "threads": model.threads}
    return {**timed["library"], "reference": {**timed["reference"], **engine}}


def _operators(bundle: Path, inputs: Inputs, watched: str | None) -> list[Record]:
    """Calls and milliseconds of every function that a warm run calls, the longest first."""
    (spent,) = kernel_times(bundle, inputs, 1, Path(watched) if watched else None)
    total = sum(map(sum, spent.values())) or 1.0
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))[:_OPERATORS_KEPT]
    return [
        {
            "name": name,
            "calls": len(times),
            "ms": _milliseconds(sum(times)),
            "share": round(sum(times) / total, 4),
        }
        for name, times in rows
    ]


def kernel_times(
    bundle: Path, inputs: Inputs, runs: int, watched: Path | None = None
) -> list[dict[str, list[float]]]:
    """For each of some warm runs the seconds of every call, by function.

    watched: as for `profile`.
    """
    spent: dict[str, list[float]] = defaultdict(list)
    started = [0.0]

    def watch(function: Any, symbol: str, before: bool, result: Any, *values: Any) -> int:
        if before:
            started[0] = time.perf_counter()
        else:
            spent[symbol].append(time.perf_counter() - started[0])
        return 0

    def watch_kernel(name: str, begins: int) -> None:
        watch(None, name, bool(begins), None)

    model = _watched(bundle, watched, watch_kernel) if watched else _instrumented(bundle, watch)
    made = []
    for _ in range(runs + 1):
        spent.clear()
        model.run(inputs)
        made.append(dict(spent))
    return made[1:]


def _instrumented(bundle: Path, watch: Callable[..., int]) -> Any:
    """A second instance of the model, which reports every call that its virtual machine makes."""
    import tvm_ffi

    from relaxd.loader.arrays import Transport
    from relaxd.loader.bundle import opened
    from relaxd.loader.engine import VirtualMachine
    from relaxd.loader.model import Model
    from relaxd.loader.runtime import open_machine
    from relaxd.loader.threads import team_for

    with opened(bundle) as content:
        machine, function = open_machine(content)
        machine["set_instrument"](tvm_ffi.convert(watch))
        manifest = content.manifest
        engine = VirtualMachine(function, Transport(manifest), manifest.inputs)
        return Model(manifest, engine, team_for(None))


def _watched(bundle: Path, library: Path, watch: Callable[[str, int], Any]) -> Any:
    """The model by the library that reports its kernels."""
    from relaxd.loader.bundle import opened
    from relaxd.loader.model import standalone_model
    from relaxd.loader.standalone import watching

    with opened(bundle) as content:
        return standalone_model(content, watching(library, watch))


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 4)


def _peak_memory() -> int:
    """Peak resident bytes of this program: unlike getrusage, the kernel's status does not count
    what the starter had.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    serve(measure)
