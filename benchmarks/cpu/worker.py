"""One engine holding one model: `python -m benchmarks.cpu.worker ENGINE FOLDER`, asked for timings
one line at a time, as `relaxd.timing.worker` is, and for more.

`{"point": k, "memory": true}`, asked of a process that has run nothing yet, gives the anonymous
memory that two calls add at their peak, in bytes: activations, outputs, whatever the engine
allocates. `{"point": k, "matmuls": true}`, asked of relaxd, gives the milliseconds that one call
spends in products by constant matrices, and the FMA peak measured in turns with that.
`{"point": k, "callers": n, "seconds": s}` lets n threads call at once and gives the milliseconds of
that time which one call takes up.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

from benchmarks.engines import ENGINES, Subject
from relaxd.timing.engines import Arrays, Runner
from relaxd.timing.worker import Answer, answer, memory_of, read_subject, serve, time_calls

MATMUL_ROUNDS = 7
PEAK_FLOPS = 1 << 32
"""Of each thread, at each look at the machine's peak: some 40 ms."""


def main(engine: str, folder: Path) -> None:
    """Compile, say how long that took, then answer until standard input ends."""
    subject = Subject(**read_subject(folder), built=folder)
    os.environ["RELAXD_NUM_THREADS"] = str(subject.threads)
    serve(lambda: ENGINES[engine](subject), folder, partial(_answer, folder / "relaxd"))


def _answer(bundle: Path, run: Runner, feed: Arrays, request: dict[str, Any]) -> Answer:
    if "matmuls" in request:
        return _in_matmuls(feed, bundle)
    if "callers" in request:
        return _at_once(run, feed, request["callers"], request["seconds"])
    return _memory(run, feed) if "memory" in request else answer(run, feed, request)


def _memory(run: Runner, feed: Arrays) -> dict[str, Any]:
    ctypes.CDLL(None).malloc_trim(0)  # What compilation freed would hide what running takes.
    before = memory_of("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        run(feed)
    return {
        "memory_bytes": memory_of("VmHWM") - memory_of("RssFile") - memory_of("RssShmem") - before
    }


def _in_matmuls(feed: Arrays, bundle: Path) -> dict[str, Any]:
    """By the virtual machine's report of each kernel; the peak of the machine in turns with them,
    and the median of both.
    """
    from compiler import targets
    from compiler.profile.kernels import kernel_times
    from compiler.profile.peaks import gflops_meter

    threads = int(os.environ["RELAXD_NUM_THREADS"])
    measure = gflops_meter(threads, targets.resolve("native"), PEAK_FLOPS)
    spent, peaks = [], []
    for _ in range(MATMUL_ROUNDS):
        runs = kernel_times(bundle, feed, runs=3)
        spent += [
            sum(sum(times) for name, times in run.items() if "matmul" in name) for run in runs
        ]
        peaks.append(measure())
    return {
        "matmul_milliseconds": 1e3 * statistics.median(spent),
        "matmul_peak_gflops": statistics.median(peaks),
    }


def _at_once(run: Runner, feed: Arrays, callers: int, seconds: float) -> dict[str, Any]:
    """`callers` threads, each with arrays of its own."""
    start = Barrier(callers)

    def rate(own: Arrays) -> float:
        """Calls a second, after a first one, which allocates what this thread computes in."""
        run(own)
        start.wait()
        times = time_calls(run, own, seconds)["milliseconds"]
        return 1e3 * len(times) / sum(times)

    with ThreadPoolExecutor(callers) as pool:
        feeds = [{name: array.copy() for name, array in feed.items()} for _ in range(callers)]
        return {"milliseconds": [1e3 / sum(pool.map(rate, feeds))]}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
