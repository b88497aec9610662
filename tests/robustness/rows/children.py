"""Rows about compile processes: whatever one does, its worker goes on and nothing is left."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import psutil

from relaxd.contract.states import State
from service.domain import Build
from tests.robustness import roles
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.site import Site, site

CODES = {
    "segfault": "compile.crashed",
    "memory": "compile.out_of_memory",
    "forks": "compile.too_many_processes",
    "disk": "compile.disk_full",
    "stall": "compile.timeout",
}
SETTINGS = {
    "memory": {"memory_mb": 256},
    "forks": {"max_processes": 48},
    "disk": {"disk_mb": 64},
    "stall": {"job_timeout_s": 15},
}
SLOTS = {"stall": 5, "forks": 1}
"""Builds at a time, two of other kinds: those that hang cost no more than waiting."""
MOST_PROCESSES = 2 * 48 + 4
"""Twice as many as the worker allows, by the kernel; with those that stand around a build."""
ORPHANS_S = 5.0
END_S = 600.0


def misbehaviour(run: Run) -> Outcome:
    """Builds of each kind, several at a time; after each kind a build that behaves."""
    typed, orphans, died, left, most, details = 0, 0, 0, 0, 0, list[str]()
    with site(run.folder, lease_s=60) as here:
        for kind, code in CODES.items():
            token = f"{run.folder.name}-{kind}"
            slots = SLOTS.get(kind, 2)
            limits = SETTINGS.get(kind, {})
            worker = here.start(roles.worker_of_children, slots, token, **limits)
            with _counting(token) as samples:
                results = [_build(here, one) for one in _submitted(here, kind, run.count)]
            most = max(samples) if kind == "forks" else most
            orphans += _orphans(token)
            good = _build(here, *_submitted(here, "good", 1))
            right = [one for one in results if one.error and one.error.code == code]
            typed += sum(one.attempts == 1 for one in right)
            died += not worker.is_alive() or good.state is not State.SUCCEEDED
            left += len(list(here.settings.work_dir.glob("*/*")))
            details += [f"{kind}: {one.state} {one.error}" for one in results if one not in right]
            if good.state is not State.SUCCEEDED:
                details.append(f"{kind}, then good: {good.state} {good.error}")
            _end(worker)
    counts = {
        "builds": run.count * len(CODES),
        "failed as they should": typed,
        "workers that ended": died,
        "most processes of one build that forks": most,
        "processes left": orphans,
        "folders left": left,
    }
    stored = typed == run.count * len(CODES) and not (died or orphans or left)
    return Outcome(bool(stored) and most <= MOST_PROCESSES, counts, "\n".join(details))


def _submitted(here: Site, kind: str, count: int) -> list[str]:
    turn = len(here.processes)
    models = [{"kind": kind, "number": number, "turn": turn} for number in range(count)]
    return [here.submit(json.dumps(one).encode()).id for one in models]


def _build(here: Site, job_id: str) -> Build:
    return here.end_of([job_id], END_S)[job_id].builds[0]


def _orphans(token: str) -> int:
    """Processes that are left once there was time for them to end."""
    end = time.monotonic() + ORPHANS_S
    while (left := _running(token)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _running(token: str) -> int:
    result = psutil.process_iter(["cmdline", "status"])
    return sum(
        token in (one.info["cmdline"] or ()) and one.info["status"] != psutil.STATUS_ZOMBIE
        for one in result
    )


@contextmanager
def _counting(token: str) -> Iterator[list[int]]:
    """How many processes there were, at each sample."""
    counts, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.05):
            counts.append(_running(token))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield counts
    finally:
        ended.set()
        thread.join()


def _end(worker: BaseProcess) -> None:
    worker.terminate()
    worker.join(30)


ROWS = (
    Row(
        "misbehaviour",
        "compile processes that crash, take memory, hang, fork or fill the disk, 50 of each: a "
        f"typed failure at the first attempt, the same worker, no process after {ORPHANS_S:g} s, "
        "and never more than the kernel allows",
        50,
        misbehaviour,
        unproven="code that looks for a hole in the sandbox; forks stop at 150 processes.",
    ),
)
