"""The kernels of a library's run as a build's profile lists them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.isolation.step import Record
from relaxd.loader.model import Model
from relaxd.loader.opening import load_library
from relaxd.loader.profiling import Timed, timed_calls

_ROWS_KEPT, _CALLS_KEPT = 50, 4000

Inputs = Mapping[str, Any]


def operators(model: Model, inputs: Inputs, runs: int) -> Record:
    """`rows` and `timeline` of the fastest of some warm runs, as
    `relaxd.contract.bundle.profile.KernelTimes` has them.
    """
    calls = min(
        timed_calls(model, inputs, runs),
        key=lambda calls: sum(ended - began for _, began, ended in calls),
    )
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
    return [_by_kernel(calls) for calls in timed_calls(load_library(bundle), inputs, runs)]
