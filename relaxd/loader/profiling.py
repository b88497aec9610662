"""Times calls of a loaded model and the kernels within them, in this process."""

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxd.loader.model import Model

Timed = tuple[str, float, float]
"""A kernel, when its call began and when it ended, in seconds."""


@dataclass(frozen=True)
class KernelShare:
    """A kernel: how often one call of the model runs it, for how long, and its share of the time of
    all kernels.
    """

    name: str
    calls: int
    ms: float
    share: float


@dataclass(frozen=True)
class CallProfile:
    """Milliseconds of a call, and its kernels, the longest first; the kernels are of a call that
    was watched, which takes a little longer, and empty for a library that does not report them.
    """

    model: str
    shapes: dict[str, list[int]]
    threads: int
    runs: int
    median_ms: float
    min_ms: float
    max_ms: float
    kernels: tuple[KernelShare, ...]


def profile(model: "Model", inputs: Mapping[str, Any] | Sequence[Any], runs: int) -> CallProfile:
    """Time `runs` calls after one that is not counted, then watch as many."""
    model.run(inputs)
    times = []
    for _ in range(max(1, runs)):
        began = time.perf_counter()
        model.run(inputs)
        times.append((time.perf_counter() - began) * 1e3)
    arrays = model.order_inputs(inputs)
    return CallProfile(
        model.manifest.name,
        {
            spec.name: list(array.shape)
            for spec, array in zip(model.manifest.inputs, arrays, strict=True)
        },
        model.threads,
        len(times),
        statistics.median(times),
        min(times),
        max(times),
        _shares(timed_calls(model, inputs, len(times))),
    )


def timed_calls(
    model: "Model", inputs: Mapping[str, Any] | Sequence[Any], runs: int
) -> list[list[Timed]]:
    """For each of so many runs, after one that is not counted, every call of a kernel in order;
    no calls where the library does not report them.
    """
    calls: list[Timed] = []
    began = 0.0

    def watch(name: str, begins: bool) -> None:
        nonlocal began
        if begins:
            began = time.perf_counter()
        else:
            calls.append((name, began, time.perf_counter()))

    watched = model.watch_kernels(watch)
    if watched is None:
        return []
    timed = []
    for _ in range(runs + 1):
        calls.clear()
        watched.run(inputs)
        timed.append(calls.copy())
    return timed[1:]


def _shares(calls: Sequence[Sequence[Timed]]) -> tuple[KernelShare, ...]:
    spent: dict[str, list[float]] = defaultdict(list)
    for name, began, ended in chain.from_iterable(calls):
        spent[name].append(ended - began)
    total = sum(map(sum, spent.values())) or 1.0
    rows, runs = sorted(spent.items(), key=lambda row: -sum(row[1])), len(calls)
    return tuple(
        KernelShare(name, len(each) // runs, sum(each) * 1e3 / runs, sum(each) / total)
        for name, each in rows
    )
