"""One engine holding one model: `python -m benchmarks.cpu.worker ENGINE FOLDER`, asked for timings
one line at a time.

A request is a JSON line `{"point": k, "seconds": s}`; the answer has the milliseconds of every call
made in that time. `{"point": k, "save": file}` stores the outputs. `{"point": k, "memory": true}`,
asked of a process that has run nothing yet,
gives the anonymous memory that two calls add at their peak, in bytes: activations, outputs,
whatever the engine allocates. `{"point": k, "matmuls": true}`, asked of relaxd, gives the
milliseconds that one call spends in products by constant matrices, and the FMA peak measured in
turns with that. `{"point": k, "callers": n, "seconds": s}` lets n threads call at once and gives
the milliseconds of that time which one call takes up.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

from benchmarks.engines import ENGINES, Arrays, Runner, Subject

MATMUL_ROUNDS = 7
PEAK_FLOPS = 1 << 32
"""Of each thread, at each look at the machine's peak: some 40 ms."""


def main(engine: str, folder: Path) -> None:
    """Compile, say how long that took, then answer until standard input ends."""
    document = json.loads((folder / "subject.json").read_text())
    subject = Subject(
        **{
            **document,
            "path": Path(document["path"]),
            "names": tuple(document["names"]),
            "built": folder,
        }
    )
    os.environ["RELAXD_NUM_THREADS"] = str(subject.threads)
    started = time.perf_counter()
    try:
        run = ENGINES[engine](subject)
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
        return
    _say({"compile_seconds": time.perf_counter() - started})
    for line in sys.stdin:
        request = json.loads(line)
        with np.load(folder / f"feed_{request['point']}.npz") as stored:
            feed = dict(stored)
        try:
            _say(_answer(run, feed, request, folder))
        except Exception as error:
            _say({"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]})


def _answer(run: Runner, feed: Arrays, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    if "save" in request:
        return _save(run, feed, request["save"])
    if "matmuls" in request:
        return _in_matmuls(feed, folder / "relaxd")
    if "callers" in request:
        return _at_once(run, feed, request["callers"], request["seconds"])
    return _memory(run, feed) if "memory" in request else _time(run, feed, request["seconds"])


def _memory(run: Runner, feed: Arrays) -> dict[str, Any]:
    ctypes.CDLL(None).malloc_trim(0)  # What compilation freed would hide what running takes.
    before = _anonymous("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        run(feed)
    return {
        "memory_bytes": _anonymous("VmHWM")
        - _anonymous("RssFile")
        - _anonymous("RssShmem")
        - before
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


def _time(run: Runner, feed: Arrays, seconds: float) -> dict[str, Any]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        run(feed)
        times.append(1e3 * (time.perf_counter() - started))
    return {"milliseconds": times}


def _at_once(run: Runner, feed: Arrays, callers: int, seconds: float) -> dict[str, Any]:
    """`callers` threads, each with arrays of its own."""
    start = Barrier(callers)

    def rate(own: Arrays) -> float:
        """Calls a second, after a first one, which allocates what this thread computes in."""
        run(own)
        start.wait()
        times = _time(run, own, seconds)["milliseconds"]
        return 1e3 * len(times) / sum(times)

    with ThreadPoolExecutor(callers) as pool:
        feeds = [{name: array.copy() for name, array in feed.items()} for _ in range(callers)]
        return {"milliseconds": [1e3 / sum(pool.map(rate, feeds))]}


def _save(run: Runner, feed: Arrays, file: str) -> dict[str, Any]:
    np.savez(file, *run(feed))
    return {"saved": file}


def _anonymous(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match, f"no {field} in /proc/self/status"
    return 1024 * int(match[1])


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
