"""Faults of a simulated fleet, each of which notes what it fell on."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import psycopg
import redis

from benchmarks.scale.autoscaler import Pods
from tests.robustness.site import START_S, until
from tests.service.servers import Server

RUNNING = "SELECT id, worker FROM builds WHERE state = 'running'"
DRAIN_S = 5.0
"""Between the last new request to an API process that is replaced and its end, as in the manifests'
preStop."""

SETTLE_S = 10.0
"""After a failover of Redis, until its connections are counted."""


def read_pid(worker: str) -> int:
    """The process of a worker's name."""
    return int(worker.split("-")[-2])


@dataclass
class Kills:
    """Kills busy workers by SIGKILL, each with the chance `share_per_min` a minute, in a thread
    while the block lasts. hit: the builds that a killed worker had in hand, and how often; one that
    has lost as many workers as it may but one is spared, for its next loss would rightly fail it.
    """

    database: str
    pods: Mapping[str, Pods]
    share_per_min: float
    spared_at: int
    seed: int
    hit: Counter[str] = field(default_factory=Counter)
    of_pool: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    busy: list[int] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Kills":
        self._thread = threading.Thread(target=self._run, name="kills", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        draw, looked_at = random.Random(self.seed), time.monotonic()
        while not self._stop.wait(1.0):
            try:
                working = {read_pid(worker): build for build, worker in self._running().items()}
            except psycopg.Error:
                continue  # the database fails over
            now = time.monotonic()
            chance, looked_at = self.share_per_min * (now - looked_at) / 60, now
            self.busy.append(len(working))
            for pid in sorted(working):
                if draw.random() < chance and self.hit[working[pid]] < self.spared_at:
                    self._kill(pid)

    def _kill(self, pid: int) -> None:
        for name, pods in self.pods.items():
            for process in (*pods.alive, *pods.ending):
                if process.pid == pid and process.is_alive():
                    process.kill()
                    process.join()
                    lost = [b for b, worker in self._running().items() if read_pid(worker) == pid]
                    self.hit.update(lost)
                    self.of_pool[name] += 1
                    self.missed += not lost
                    return

    def _running(self) -> dict[str, str]:
        with psycopg.connect(self.database, connect_timeout=2) as connection:
            return dict(connection.execute(RUNNING).fetchall())


@dataclass(frozen=True)
class Cluster:
    """PostgreSQL's primary and its synchronous replica."""

    primary: Server
    replica: Server

    def wait_for_commits(self) -> None:
        """Make every commit wait for the replica."""
        with psycopg.connect(self.primary.url, autocommit=True) as operator:
            operator.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            operator.execute("SELECT pg_reload_conf()")
            state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: operator.execute(state).fetchone() == (1,), START_S, "the replica")

    def fail_over(self) -> dict[str, Any]:
        """Kill the primary, and promote the replica as an operator does that has noticed."""
        with psycopg.connect(self.primary.url, autocommit=True) as operator:
            clients = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            connections = operator.execute(clients).fetchone()
        began = time.monotonic()
        self.primary.end(signal.SIGKILL)
        with psycopg.connect(self.replica.url, autocommit=True) as operator:
            operator.execute("SELECT pg_promote()")
            until(
                lambda: operator.execute("SELECT pg_is_in_recovery()").fetchone() == (False,),
                START_S,
                "the promoted replica",
            )
        seconds = round(time.monotonic() - began, 2)
        return {"connections": connections[0] if connections else 0, "promoted_s": seconds}


def fail_redis_over(primary: Server, heir: Server) -> dict[str, Any]:
    """Kill the primary, and wait until Sentinels have made its replica the primary and the service
    rings there.
    """
    with redis.Redis.from_url(primary.url) as client:
        connections = len(client.client_list())
    began = time.monotonic()
    primary.end(signal.SIGKILL)
    with redis.Redis.from_url(heir.url) as client:
        until(lambda: client.role()[0] == b"master", START_S, "a new primary of Redis")
        promoted = time.monotonic() - began
        # Every ring asks for the length of its queue.
        until(lambda: "cmdstat_llen" in client.info("commandstats"), START_S, "a ring")
        rung = time.monotonic() - began
        time.sleep(SETTLE_S)
        back = len(client.client_list())
    return {
        "connections": connections,
        "promoted_s": round(promoted, 2),
        "rung_s": round(rung, 2),
        "connections_after": back,
    }


def roll_api(
    urls: list[str],
    old: tuple[BaseProcess, str],
    start: Callable[[], tuple[BaseProcess, str]],
    answered: Counter[str],
) -> dict[str, Any]:
    """Replace one API process as the manifests do: another starts first, then new requests go
    there, then the old one is asked to end.
    """
    process, url = old
    began, before = time.monotonic(), Counter(answered)
    _, fresh = start()
    urls[urls.index(url)] = fresh
    time.sleep(DRAIN_S)
    process.terminate()
    process.join(60)
    exit_code = process.exitcode
    refused = {name: answered[name] - before[name] for name in ("lost", "503")}
    return {"seconds": round(time.monotonic() - began, 1), "exit": exit_code, **refused}
