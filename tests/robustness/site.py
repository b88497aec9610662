"""A service for one row: its servers, its processes, and what becomes of its jobs."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import select

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service import bootstrap
from service.bootstrap import Services
from service.db.schema import builds
from service.domain import EventType, Job
from service.settings import Settings
from tests.robustness import roles
from tests.robustness.stub import StubCompiler
from tests.service.servers import Server, postgres_process, redis_process

START_S = 300.0
END_S = 180.0

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.robustness.roles"])


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for a true condition, and return it; raises TimeoutError after so long."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)
    return value


class Site:
    """Processes over one database, one broker and one store; `services` is this process's way to
    them, which needs no API.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.services: Services = bootstrap.build(settings, compiler=StubCompiler())
        self.processes: list[BaseProcess] = []

    def start(self, role: Callable[..., None], *arguments: Any, **changed: Any) -> BaseProcess:
        """A new process with a role of `tests.robustness.roles`, and some settings changed."""
        settings = self.settings.model_copy(update=changed)
        inputs_given = (settings, self.folder / "log", *arguments)
        process = _FORKS.Process(target=role, args=inputs_given)
        process.start()
        self.processes.append(process)
        return process

    def worker(self, slots: int = 2, **changed: Any) -> BaseProcess:
        """A new worker with the stub compiler."""
        return self.start(roles.worker, slots, **changed)

    def api(self, role: Callable[..., None] = roles.api) -> tuple[BaseProcess, str]:
        """A new API and its URL, once it answers."""
        port_file = self.folder / f"port-{uuid4().hex}"
        process = self.start(role, port_file)
        until(
            lambda: port_file.exists() or not process.is_alive(),
            START_S,
            f"the start of the API, see {self.folder / 'log'}",
        )
        if not port_file.exists():
            raise RuntimeError(f"the API ended at its start with {process.exitcode}:\n{self.log()}")
        return process, f"http://127.0.0.1:{port_file.read_text().strip()}"

    def log(self) -> str:
        """The last lines of what the processes wrote."""
        path = self.folder / "log"
        return "\n".join(path.read_text().splitlines()[-40:]) if path.exists() else "(no log)"

    def stop(self) -> None:
        """End every process."""
        for process in self.processes:
            process.kill()
            process.join()
        self.services.close()

    def submit(self, model: bytes, **request: Any) -> Job:
        """A job from this process, without the API."""
        digest = self.services.store.blobs.put(model).digest
        return self.services.jobs.submit(digest, CompileRequest.of(**request))

    def running(self) -> dict[str, str]:
        """The worker of each running build."""
        with self.services.core.reading() as tx:
            query = select(builds.c.id, builds.c.worker).where(builds.c.state == State.RUNNING)
            return {row.id: row.worker for row in tx.connection.execute(query)}

    def wait_until_workers(self, count: int) -> None:
        """Wait until so many workers have announced themselves."""
        until(
            lambda: (
                sum(bool(t["workers"]) for t in self.services.jobs.targets()) > 0
                and len(self.workers()) >= count
            ),
            START_S,
            f"{count} workers, see {self.folder / 'log'}",
        )

    def workers(self) -> set[str]:
        """Names of the workers that have announced themselves within a lease."""
        return {name for target in self.services.jobs.targets() for name in target["workers"]}

    def end_of(self, ids: list[str], seconds: float = END_S) -> dict[str, Job]:
        """The jobs once all have ended, or as they stand when none has ended for so long."""
        marks, ended, deadline = self.services.jobs.marks, -1, 0.0
        while True:
            result = marks(ids)
            done = sum(mark.state.terminal for mark in result.values())
            if done > ended:
                ended, deadline = done, time.monotonic() + seconds
            if done == len(set(ids)) or time.monotonic() > deadline:
                return {id: self.services.jobs.get(id) for id in result}
            time.sleep(0.1)

    def compiles(self) -> Counter[str]:
        """How often each key was compiled."""
        return Counter(line.rpartition(" ")[0] for line in self.ledger.read_text().splitlines())

    def verdict(
        self, ids: list[str], ended: dict[str, Job], losses: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Count jobs that are lost, did not succeed, ended more than once, or have another
        bundle than an equal one. With `losses`, the number of workers that were killed under each
        build, those are counted apart that failed because every attempt lost its worker.
        """
        bundles: dict[str | None, set[str]] = {}
        for build in (build for job in ended.values() for build in job.builds):
            if build.artifact:
                bundles.setdefault(build.action_key, set()).add(build.artifact.digest)
        endings = [self._endings(job) for job in ended.values() if job.state.terminal]
        hopeless = {id for id, job in ended.items() if self._is_hopeless(job, losses or {})}
        failed = {id for id, job in ended.items() if job.state is not State.SUCCEEDED}
        return {
            "jobs": len(ids),
            "lost": sum(id not in ended or not ended[id].state.terminal for id in ids),
            "not succeeded": len(failed - hopeless),
            "ended twice": sum(count != 1 for count in endings),
            "published twice": sum(len(digests) > 1 for digests in bundles.values()),
            **({} if losses is None else {"lost at every attempt": len(hopeless)}),
        }

    def _is_hopeless(self, job: Job, losses: Mapping[str, int]) -> bool:
        """True if a build of the job failed, rightly, as each attempt lost its worker."""
        return any(
            build.error is not None
            and build.error.code == "worker.lost"
            and losses.get(build.id, 0) >= self.settings.max_attempts
            for build in job.builds
        )

    def _endings(self, job: Job) -> int:
        """1 where each of the job's builds, and the job, ended once."""
        types = [event.type for event in self.services.jobs.events(job.id)]
        ends = (types.count(EventType.BUILD_FINISHED), types.count(EventType.JOB_FINISHED))
        return 1 if ends == (len(job.builds), 1) else 0


BAD = ("lost", "not succeeded", "ended twice", "published twice")


@contextmanager
def site(folder: Path, **settings: Any) -> Iterator[Site]:
    """A service of no process yet; embedded unless the settings name servers."""
    quick = {"lease_s": 2, "sweep_s": 0.3, "ring_after_s": 0.5, "gc_s": 0, "log_level": "WARNING"}
    chosen = Settings(**{"data_dir": folder / "data", **quick, **settings})
    result = Site(folder, chosen)
    try:
        yield result
    finally:
        result.stop()


@dataclass(frozen=True)
class Scaled:
    """A service with the servers of its scaled form."""

    site: Site
    redis: Server
    postgres: Server


@contextmanager
def scaled_site(folder: Path, **settings: Any) -> Iterator[Scaled]:
    """A service of no process yet, over Redis and PostgreSQL of its own."""
    with redis_process() as broker, postgres_process() as cluster:
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE jobs")
        database = cluster.url.rpartition("/")[0] + "/jobs"
        with site(folder, broker_url=broker.url, database_url=database, **settings) as result:
            yield Scaled(result, broker, cluster)
