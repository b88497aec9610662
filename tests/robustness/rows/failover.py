"""Rows about a PostgreSQL that fails over, turns read-only, is slow, or has no disk left."""

import json
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from tests.robustness.clients import Clients
from tests.robustness.forwarding import Forwarder, forwarding
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.site import BAD, START_S, Site, site, until
from tests.robustness.stub import model
from tests.service.servers import (
    Server,
    postgres_process,
    postgres_replica,
    read_only,
    redis_process,
)
from tests.support import plain_http

DELAY_S, DELAYED_S = 0.2, 5.0
DISK_MIB = 256
NOTICED_S = 60.0
"""Within so long /readyz says that the database takes no writes, and that it does again."""


@dataclass
class Cluster:
    """A primary behind a forwarder, which leads to the replica that takes its place."""

    primary: Server
    forwarder: Forwarder
    stack: ExitStack
    ready: Callable[[], int]
    seen: Counter[str] = field(default_factory=Counter)

    def promote(self) -> None:
        """Kill the primary, lead to its replica, and make that the primary after a while. Commits
        wait for the replica before, so that it lacks nothing.
        """
        replica = self.stack.enter_context(postgres_replica(self.primary))
        with _operator(self.primary) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: connection.execute(state).fetchone() == (1,), START_S, "the replica")
        time.sleep(1)
        self.primary.end(signal.SIGKILL)
        self.primary = replica
        self.forwarder.target = _address(replica)
        self._wait_until_noticed()
        with _operator(replica) as connection:
            connection.execute("SELECT pg_promote()")

    def turn_read_only(self) -> None:
        """Refuse writes until the service has noticed."""
        with read_only(_jobs_of(self.primary)):
            self._wait_until_noticed()

    def delay(self) -> None:
        """Be slow for DELAYED_S."""
        self.forwarder.delay_s = DELAY_S
        time.sleep(DELAYED_S)
        self.forwarder.delay_s = 0.0

    def fail(self, number: int) -> None:
        """One fault, and the recovery from it."""
        kinds = (self.promote, self.turn_read_only, self.delay)
        kinds[number % len(kinds)]()
        self.seen[kinds[number % len(kinds)].__name__.replace("_", " ")] += 1
        until(lambda: self.ready() == 200, NOTICED_S, "a service that is ready again")

    def _wait_until_noticed(self) -> None:
        until(lambda: self.ready() == 503, NOTICED_S, "a service that is not ready")
        self.seen["not ready"] += 1


def _address(server: Server) -> tuple[str, int]:
    return "127.0.0.1", int(make_url(server.url).port or 0)


def _jobs_of(server: Server) -> str:
    return server.url.rpartition("/")[0] + "/jobs"


@contextmanager
def _operator(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


def failover(run: Run) -> Outcome:
    """Faults of each kind in turn, under load."""
    with ExitStack() as stack:
        broker = stack.enter_context(redis_process())
        primary = stack.enter_context(postgres_process())
        with _operator(primary) as connection:
            connection.execute("CREATE DATABASE jobs")
        forwarder = stack.enter_context(forwarding(_address(primary)))
        database = f"postgresql://relaxd@127.0.0.1:{forwarder.port}/jobs"
        servers = {"broker_url": broker.url, "database_url": database}
        here = stack.enter_context(site(run.folder, lease_s=30, **servers))
        workers = [here.worker() for _ in range(2)]
        api, url = here.api()
        here.wait_until_workers(2)
        cluster = Cluster(primary, forwarder, stack, partial(_ready, url))
        outcome = _under_load(run, here, url, cluster.fail)
        died = sum(not process.is_alive() for process in (api, *workers))
        figures = {**cluster.seen, **outcome.counts, "processes that ended": died}
    return Outcome(outcome.is_met and not died, figures, outcome.detail)


def _under_load(run: Run, here: Site, url: str, fail: Callable[[int], None]) -> Outcome:
    """All faults, each once some jobs were accepted, and what became of the jobs."""
    with Clients(here, url) as clients:
        for number in range(run.count):
            until(partial(clients.have, len(clients.accepted) + 5), START_S, "accepted jobs")
            fail(number)
        until(partial(clients.have, len(clients.accepted) + 5), START_S, "accepted jobs")
    ids = list(clients.accepted.values())
    verdict = here.verdict(ids, here.end_of(ids))
    figures = {
        **verdict,
        "refused submits": clients.refused,
        "without a hint": clients.unhinted,
        "other 5xx": len(clients.surprises),
    }
    bad = clients.surprises or clients.unhinted or any(verdict[name] for name in BAD)
    return Outcome(not bad, figures, "\n".join(clients.surprises[:10]))


def full_disk(run: Run) -> Outcome:
    """The disk of PostgreSQL fills up, until the service refuses a submit."""
    with ExitStack() as stack:
        disk = stack.enter_context(_small_disk())
        broker = stack.enter_context(redis_process())
        primary = stack.enter_context(postgres_process(disk))
        with _operator(primary) as connection:
            connection.execute("CREATE DATABASE jobs")
        servers = {"broker_url": broker.url, "database_url": _jobs_of(primary)}
        here = stack.enter_context(site(run.folder, lease_s=30, **servers))
        workers = [here.worker() for _ in range(2)]
        api, url = here.api()
        here.wait_until_workers(2)

        def fail(number: int) -> None:
            _fill(disk / "ballast")
            until(lambda: not _is_accepted(here, url, number), NOTICED_S, "a refused submit")
            (disk / "ballast").unlink()
            until(lambda: _ready(url) == 200, NOTICED_S, "a service that is ready again")

        outcome = _under_load(run, here, url, fail)
        died = sum(not process.is_alive() for process in (api, *workers))
        # Each time the disk was full one was refused at least, beside those of the load.
        refused = outcome.counts["refused submits"] + run.count
        figures = {**outcome.counts, "refused submits": refused, "processes that ended": died}
    return Outcome(outcome.is_met and not died, figures, outcome.detail)


def _fill(path: Path) -> None:
    """Take all that the disk has, to which others write meanwhile."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))


def _is_accepted(here: Site, url: str, number: int) -> bool:
    """True if a submit of some size is accepted."""
    dims = {f"d{each}": 4 for each in range(400)}
    content = model(here.ledger, key=f"full {number}")
    files: dict[str, Any] = {
        "model": ("m.onnx", content),
        "request": (None, json.dumps({"dims": dims})),
    }
    return plain_http.post(f"{url}/v1/compile", files=files, timeout=60).is_success


@contextmanager
def _small_disk() -> Iterator[Path]:
    """A file system of DISK_MIB in memory, which PostgreSQL's own user can reach too."""
    folder = Path(tempfile.mkdtemp(prefix="relaxd-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def _ready(url: str) -> int:
    try:
        return plain_http.get(f"{url}/readyz", timeout=60).status_code
    except httpx.TransportError:
        return 0


ROWS = (
    Row(
        "failover",
        "PostgreSQL fails over to its replica, turns read-only and is slow, in turn, under load: "
        "no job is lost, refused requests are retryable and say what to do, `/readyz` is not ok "
        f"within {NOTICED_S:g} s while no write is taken and ok within {NOTICED_S:g} s after, and "
        "no process of the service ends",
        12,
        failover,
        "Commits wait for the replica: with asynchronous replication the last ones are lost with "
        "the primary. Its address stays, as behind a proxy.",
        fewest=3,
        minimums={"not ready": 0.6, "refused submits": 0.3, "jobs": 5},
    ),
    Row(
        "database-full-disk",
        "the disk of PostgreSQL fills up under load: no job is lost, refused requests are "
        f"retryable and say what to do, the service goes on within {NOTICED_S:g} s once there is "
        "room, and no process of it ends",
        10,
        full_disk,
        "The disk is a tmpfs.",
        minimums={"refused submits": 0.5, "jobs": 5},
    ),
)
