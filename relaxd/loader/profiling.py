"""Times calls of a loaded model and the kernels within them, in this process."""

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relaxd.loader.machines import Machines

if TYPE_CHECKING:
    from relaxd.loader.model import Model


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
    was watched, which takes a little longer.
    """

    model: str
    shapes: dict[str, list[int]]
    threads: int
    runs: int
    median_ms: float
    min_ms: float
    max_ms: float
    kernels: tuple[KernelShare, ...]


def profile(
    model: "Model", machines: Machines | None, inputs: Mapping[str, Any] | Sequence[Any], runs: int
) -> CallProfile:
    """Time `runs` calls after one that is not counted, then watch as many on a machine apart; a
    library without machines does not report its kernels.
    """
    model.run(inputs)
    times = []
    for _ in range(max(1, runs)):
        began = time.perf_counter()
        model.run(inputs)
        times.append((time.perf_counter() - began) * 1e3)
    kernels = _kernels(model, machines, inputs, max(1, runs)) if machines else ()
    arrays = model.bound(inputs)
    return CallProfile(
        model.manifest.name,
        {spec.name: list(array.shape) for spec, array in zip(model.inputs, arrays, strict=True)},
        model.threads,
        len(times),
        statistics.median(times),
        min(times),
        max(times),
        kernels,
    )


def _kernels(
    model: "Model", machines: Machines, inputs: Mapping[str, Any] | Sequence[Any], runs: int
) -> tuple[KernelShare, ...]:
    from relaxd.loader.ffi import tvm_ffi

    spent: dict[str, list[float]] = defaultdict(list)
    began = [0.0]

    def watch(function: Any, symbol: str, before: bool, result: Any, *values: Any) -> int:
        if before:
            began[0] = time.perf_counter()
        else:
            spent[symbol].append(time.perf_counter() - began[0])
        return 0

    machine, function = machines.apart()
    machine["set_instrument"](tvm_ffi.convert(watch))
    watched = model.over(function)
    watched.run(inputs)
    spent.clear()
    for _ in range(runs):
        watched.run(inputs)
    total = sum(map(sum, spent.values())) or 1.0
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))
    return tuple(
        KernelShare(name, len(each) // runs, sum(each) * 1e3 / runs, sum(each) / total)
        for name, each in rows
    )
