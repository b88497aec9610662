"""Processor time of workers without a build, and of PostgreSQL and Redis for them."""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.scale import stub_worker
from tests.robustness.site import scaled_site

SETTLE_S = 10.0


def measure(
    folder: Path, workers: int, seconds: float, sweep_s: float
) -> dict[str, dict[str, float]]:
    """Processor time by kind of process, of all workers together: seconds until they have come to
    rest, and milliseconds a second from then on.
    """
    with scaled_site(folder, sweep_s=sweep_s, lease_s=30) as scaled:
        here = scaled.site
        for _ in range(workers):
            here.start(stub_worker.work_for_pool, 1)
        here.wait_until_workers(workers)
        time.sleep(SETTLE_S)
        mine = {process.pid for process in here.processes}
        before = _used(mine)
        time.sleep(seconds)
        after = _used(mine)
    rest = {kind: (used - before[kind]) * 1000 / seconds for kind, used in after.items()}
    return {"seconds_to_start": _round(before), "ms_a_second": _round(rest)}


def _round(figures: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(value, 2) for kind, value in figures.items() if value >= 0.01}


def _used(workers: set[int]) -> dict[str, float]:
    """Processor time so far; the servers' children count for them."""
    seconds: dict[str, float] = defaultdict(float)
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        kind = "workers" if process.pid in workers else process.name()
        seconds[kind] += times.user + times.system
    return seconds


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.idle")
    parser.add_argument("workers", nargs="*", type=int, default=[1, 10])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--sweep-s", type=float, default=5, help="RELAXD_SWEEP_S")
    options = parser.parse_args()
    for workers in options.workers:
        with tempfile.TemporaryDirectory(prefix="relaxd-idle-") as folder:
            used = measure(Path(folder), workers, options.seconds, options.sweep_s)
        print(json.dumps({"workers": workers, **used}), flush=True)


if __name__ == "__main__":
    main()
