"""Measures a new library in a process of its own: latency a shape, load time, memory, time an
operator.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler.errors import ProfileError
from compiler.isolation.step import Record, run_task, serve
from compiler.verify import npz
from compiler.verify.inputs import Trials
from compiler.verify.time_budget import TimeBudget

FILENAME = "profile.json"

_WARM_UPS = 2
_MOST_RUNS = 50
_FEWEST_RUNS = 3
_OPERATORS_KEPT = 50
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
) -> Record:
    """The report, within a budget of wall-clock seconds; raises ProfileError when the library
    crashes.

    watched: for a library that needs no runtime, a build of it that reports its kernels.
    """
    chosen = [trial for trial in trials.chosen if trial.point.label in _POINT_LABELS]
    spec = {
        "bundle": str(bundle),
        "seconds": seconds,
        "watched": str(watched) if watched is not None and watched.exists() else None,
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
    started = time.perf_counter()
    model = load(bundle)
    record(
        {
            "load_ms": _milliseconds(time.perf_counter() - started),
            "threads": model.threads,
            "processors": os.cpu_count(),
        }
    )
    record({"library_bytes": (bundle / model.manifest.library).stat().st_size})
    budget = TimeBudget(spec["seconds"])
    for position, point in enumerate(spec["points"]):
        inputs = npz.read(Path(point["inputs"]))
        if objection := budget.objection(inputs, runs=_WARM_UPS + _FEWEST_RUNS):
            record(
                {"left_out": {"label": point["label"], "dims": point["dims"], "reason": objection}}
            )
            continue
        share = budget.left / (len(spec["points"]) - position)
        timing = _latency(lambda inputs=inputs: model.run(inputs), share)  # type: ignore[misc]
        budget.took(inputs, timing["median_ms"] / 1e3)
        record(
            {
                "point": {"label": point["label"], "dims": point["dims"], **timing},
                "peak_rss_bytes": _peak_memory(),
            }
        )
        if point["label"] == "opt" or len(spec["points"]) == 1:
            record(
                {
                    "operators": {
                        "label": point["label"],
                        "dims": point["dims"],
                        "rows": _operators(bundle, inputs, spec.get("watched")),
                    }
                }
            )


def _latency(call: Callable[[], Any], seconds: float) -> Record:
    """Median and 95th percentile over as many calls as the time allows."""
    deadline = time.perf_counter() + seconds
    for _ in range(_WARM_UPS):
        call()
        if time.perf_counter() > deadline:
            break
    times: list[float] = []
    while len(times) < _MOST_RUNS and (len(times) < _FEWEST_RUNS or time.perf_counter() < deadline):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
        if time.perf_counter() > deadline + seconds:
            break
    times.sort()
    at = {
        name: times[min(int(len(times) * part), len(times) - 1)]
        for name, part in (("median_ms", 0.5), ("p95_ms", 0.95))
    }
    return {**{name: _milliseconds(value) for name, value in at.items()}, "runs": len(times)}


def _operators(bundle: Path, inputs: Mapping[str, Any], watched: str | None) -> list[Record]:
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
    bundle: Path, inputs: Mapping[str, Any], runs: int, watched: Path | None = None
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
