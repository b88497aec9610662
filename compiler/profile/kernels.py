"""Times every kernel of a library's run, by a second instance that reports its calls."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.isolation.step import Record

_ROWS_KEPT, _CALLS_KEPT = 50, 4000

Inputs = Mapping[str, Any]
Timed = tuple[str, float, float]
"""A kernel, when its call began and when it ended, in seconds."""


def operators(bundle: Path, inputs: Inputs, watched: str | None, runs: int) -> Record:
    """`rows` and `timeline` of the fastest of some warm runs, as
    `relaxd.contract.profile.KernelTimes` has them.

    watched: for a library that needs no runtime, a build of it that reports its kernels.
    """
    made = timed_calls(bundle, inputs, runs, Path(watched) if watched else None)
    calls = min(made, key=lambda calls: sum(ended - began for _, began, ended in calls))
    return {"rows": _rows(calls), "timeline": _timeline(calls)}


def _rows(calls: Sequence[Timed]) -> list[Record]:
    """The kernels that took the longest."""
    spent = _by_kernel(calls)
    total = sum(map(sum, spent.values())) or 1.0
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))[:_ROWS_KEPT]
    return [
        {
            "name": name,
            "calls": len(times),
            "ms": round(sum(times) * 1e3, 4),
            "share": round(sum(times) / total, 4),
        }
        for name, times in rows
    ]


def _timeline(calls: Sequence[Timed]) -> list[Record]:
    first = calls[0][1] if calls else 0.0
    return [
        {
            "name": name,
            "start_us": round((began - first) * 1e6, 1),
            "us": round((ended - began) * 1e6, 1),
        }
        for name, began, ended in calls[:_CALLS_KEPT]
    ]


def _by_kernel(calls: Sequence[Timed]) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = defaultdict(list)
    for name, began, ended in calls:
        spent[name].append(ended - began)
    return dict(spent)


def kernel_times(bundle: Path, inputs: Inputs, runs: int) -> list[dict[str, list[float]]]:
    """For each of some warm runs the seconds of every call, by kernel."""
    return [_by_kernel(calls) for calls in timed_calls(bundle, inputs, runs)]


def timed_calls(
    bundle: Path, inputs: Inputs, runs: int, watched: Path | None = None
) -> list[list[Timed]]:
    """For each of some warm runs every call of a kernel, in order; watched: as for `operators`."""
    calls: list[Timed] = []
    started = [0.0]

    def watch(function: Any, symbol: str, before: bool, result: Any, *values: Any) -> int:
        if before:
            started[0] = time.perf_counter()
        else:
            calls.append((symbol, started[0], time.perf_counter()))
        return 0

    def watch_kernel(name: str, begins: int) -> None:
        watch(None, name, bool(begins), None)

    model = _watched(bundle, watched, watch_kernel) if watched else _instrumented(bundle, watch)
    made = []
    for _ in range(runs + 1):
        calls.clear()
        model.run(inputs)
        made.append(list(calls))
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
