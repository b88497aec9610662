"""Rows about workers: they are killed, crash with their builds, and drain."""

import os
import random
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from relaxd.contract.states import State
from service.domain import EventType, Job
from service.settings import Settings
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.site import BAD, START_S, Site, scaled_site, site, until
from tests.robustness.stub import model

WORKERS = 4
LEASE_S = 5.0
AT_WORK = 0.9
"""The share of kills that choose among workers with a build in hand, where there are any."""
ATTEMPTS = int(Settings.model_fields["max_attempts"].default)
"""As many as users have."""
DRAIN_S, END_S = 0.5, 10.0


@dataclass
class _Kills:
    """Workers that are killed and replaced; `in_hand`: when each build lost which worker."""

    here: Site
    alive: list[BaseProcess] = field(default_factory=list)
    in_hand: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def replenish(self) -> None:
        while len(self.alive) < WORKERS:
            self.alive.append(self.here.worker())

    def kill(self, draw: random.Random) -> None:
        """Kill one of the workers that have announced themselves, mostly one at work, the first
        time always; at least one is left. None is killed that has a build at its last attempt.
        """
        if not self.in_hand:
            until(self.here.running, START_S, "a build")
        candidates = until(self._candidates, START_S, "two workers, one of which may be killed")
        working = {_pid(worker) for worker in self.here.running().values()}
        busy = [process for process in candidates if process.pid in working]
        aimed = not self.in_hand or draw.random() < AT_WORK
        doomed = draw.choice(busy if busy and aimed else candidates)
        doomed.kill()
        doomed.join()
        index = datetime.now(UTC)
        self.alive.remove(doomed)
        for build, worker in self.here.running().items():
            if _pid(worker) == doomed.pid:
                self.in_hand[build, worker] = index

    def _candidates(self) -> list[BaseProcess]:
        pids = {_pid(name) for name in self.here.workers()}
        announced = [process for process in self.alive if process.pid in pids]
        losses = self.losses()
        spared = {
            _pid(worker)
            for build, worker in self.here.running().items()
            if losses[build] >= ATTEMPTS - 1
        }
        if len(announced) < 2:
            return []
        return [process for process in announced if process.pid not in spared]

    def losses(self) -> Counter[str]:
        """How many workers each build has lost."""
        return Counter(build for build, _ in self.in_hand)

    def requeued_after(self, jobs: dict[str, Job]) -> list[float]:
        """The seconds from each kill to the return of each build that the worker held."""
        waits = []
        for job_id in {build.rpartition("-")[0] for build, _ in self.in_hand} & set(jobs):
            for event in self.here.services.jobs.events(job_id):
                match = re.match(r"worker (\S+) stopped responding", event.data.get("reason", ""))
                if event.type is EventType.BUILD_QUEUED and match:
                    index = self.in_hand.get((jobs[job_id].builds[0].id, match[1]))
                    waits += [(event.time - index).total_seconds()] if index else []
        return waits


def _pid(worker: str) -> int:
    return int(worker.split("-")[-2])


def kills(run: Run) -> Outcome:
    """Random kills of workers, with half as many jobs on the way."""
    draw, count = random.Random(run.seed), max(2, run.count // 2)
    with scaled_site(run.folder, lease_s=LEASE_S) as scaled:
        here = scaled.site
        killing, ids = _Kills(here), list[str]()
        for number in range(run.count):
            while len(ids) < min(count, 2 * WORKERS + number * count // run.count):
                content = model(here.ledger, draw.uniform(1, 4), key=f"key {len(ids)}")
                ids.append(here.submit(content).id)
            killing.replenish()
            time.sleep(draw.uniform(0, 0.5))
            killing.kill(draw)
        killing.replenish()
        ended = here.end_of(ids, 300)
        verdict = here.verdict(ids, ended, killing.losses())
        waits = killing.requeued_after(ended)
    counts = {
        "kills": run.count,
        **verdict,
        "builds in hand": len(killing.in_hand),
        "given back": len(waits),
        "longest wait in leases": round(max(waits, default=0) / LEASE_S, 2),
    }
    every = len(waits) + verdict["lost at every attempt"] == len(killing.in_hand)
    return Outcome(every and not any(verdict[bad] for bad in BAD), counts)


def crashes(run: Run) -> Outcome:
    """Jobs of which half kill their worker, half their own process, whenever they are run."""
    with site(run.folder, lease_s=10) as here:
        kinds = [("worker", "child")[number % 2] for number in range(run.count)]
        ids = [
            here.submit(model(here.ledger, crash=kind, key=f"key {number}")).id
            for number, kind in enumerate(kinds)
        ]
        workers = [here.worker(slots=1) for _ in range(2)]
        marks, end = here.services.jobs.marks, time.monotonic() + 120 + 40 * run.count
        while time.monotonic() < end and not all(m.state.terminal for m in marks(ids).values()):
            workers = [one if one.is_alive() else here.worker(slots=1) for one in workers]
            time.sleep(0.1)
        ended = here.end_of(ids, 0.1)
        compiles = here.compiles()
    codes = {"worker": "worker.lost", "child": "compile.crashed"}
    right = [
        _failed(ended[one].builds[0], codes[kind]) and compiles[f"key {number}"] == ATTEMPTS
        for number, (one, kind) in enumerate(zip(ids, kinds, strict=True))
    ]
    counts = {
        "jobs": run.count,
        "attempts each": ATTEMPTS,
        "attempts": compiles.total(),
        "failed with the reason": sum(right),
    }
    return Outcome(all(right), counts, "\n".join(str(ended[one].builds) for one in ids))


def _failed(build: Any, code: str) -> bool:
    return bool(
        build.state is State.FAILED
        and build.attempts == ATTEMPTS
        and build.error
        and build.error.code == code
        and build.error.message
    )


def drains(run: Run) -> Outcome:
    """SIGTERM to workers at work: builds of the first half can end in time, the others cannot."""
    half, gate = (run.count + 1) // 2, run.folder / "gate"
    with site(run.folder, lease_s=30) as here:
        finished = returned = 0
        seconds, ids = list[float](), list[str]()
        for number in range(run.count):
            own = run.folder / f"gate {number}" if number < half else gate
            job = here.submit(model(here.ledger, key=f"key {number}", gate=str(own)))
            ids.append(job.id)
            worker = here.worker(slots=1, drain_s=60 if number < half else DRAIN_S)
            seconds.append(_drain(here, worker, own if number < half else None))
            build = here.services.jobs.get(job.id).builds[0]
            finished += (build.state, build.attempts) == (State.SUCCEEDED, 1)
            returned += (build.state, build.attempts) == (State.QUEUED, 0)
        gate.touch()
        here.worker()
        verdict = here.verdict(ids, here.end_of(ids))
    counts = {
        "finished": finished,
        "handed back": returned,
        "longest end in seconds": round(max(seconds), 1),
        **verdict,
    }
    right = (finished, returned) == (half, run.count - half)
    return Outcome(right and not any(verdict[bad] for bad in BAD), counts)


def _drain(here: Site, worker: BaseProcess, gate: Path | None) -> float:
    """Seconds from SIGTERM to the worker's end; the gate opens once the worker has heard it."""
    assert worker.pid is not None
    compiles = here.compiles().total()
    until(lambda: here.compiles().total() > compiles and here.running(), START_S, "a compile")
    os.kill(worker.pid, signal.SIGTERM)
    began = time.monotonic()
    if gate:
        time.sleep(0.3)
        gate.touch()
    worker.join(60)
    return time.monotonic() - began if worker.exitcode == 0 else float("inf")


ROWS = (
    Row(
        "worker-kills",
        "200 random kill -9 of workers over 100 jobs: no job is lost, none is published twice, and "
        "what a killed worker had in hand is queued again within two leases, or fails as "
        f"worker.lost where that was its attempt {ATTEMPTS} of {ATTEMPTS}",
        200,
        kills,
        unproven="machines that lose power or their clock; the compiles are stubs of up to 4 s, "
        f"and a lease is {LEASE_S:g} s. Workers with a build at its last attempt are spared.",
        minimums={"builds in hand": 0.25},
        maximums={"longest wait in leases": 2},
    ),
    Row(
        "crash-loop",
        f"a job that always crashes, with its worker or without: {ATTEMPTS} attempts, then it "
        "fails with the reason",
        20,
        crashes,
    ),
    Row(
        "drain",
        "SIGTERM to a worker: its build ends within the limit, or is handed back uncounted, and "
        f"the worker ends within {END_S:g} s",
        20,
        drains,
        unproven=f"the limit to the second: a worker may take up to {END_S:g} s to end.",
        fewest=2,
        minimums={"finished": 0.5, "handed back": 0.5},
        maximums={"longest end in seconds": END_S},
    ),
)
