"""A fleet of 50 workers in three pools through everything that goes wrong in its life, on one
machine: PostgreSQL with a synchronous replica that is promoted, Redis behind three Sentinels, an
object store that is late and refuses requests, workers that are killed at work, an API process that
is replaced. Pools scale by the view `scaling` and the generated manifests, at a multiple of their
speed; compilers are stubs that take their time.

    python -m benchmarks.scale.simulation --rate 200 --seconds 360 --seed 1
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis
from sqlalchemy import make_url

from benchmarks.scale import stub_worker
from benchmarks.scale.autoscaler import Autoscaler, Pods, Replicas, read_behaviors
from benchmarks.scale.faults import Cluster, Kills, fail_redis_over, roll_api
from benchmarks.scale.submits import Submits
from benchmarks.scale.unreliable_store import Trouble, unreliable_store
from relaxd.contract.canonical import digest_of
from service.settings import Settings
from tests.robustness.site import Site, site, until
from tests.robustness.stub import model
from tests.service.servers import (
    Server,
    postgres_process,
    postgres_replica,
    redis_process,
    redis_sentinel,
)
from tests.support.s3 import s3_server
from tools.kubernetes.pools import Pool, setting_of

POOLS = {
    "x86": Pool(capabilities="*,!cuda-*,!raw-cuda", min=2, max=20),
    "spot": Pool(capabilities="*,!cuda-*,!raw-cuda", above=20, max=18, drain_s=90, grace_s=20),
    "cuda": Pool(capabilities="cuda-*,raw-cuda", max=12),
}
TARGETS = ("x86-64-v3", "aarch64", "x86-64-v2", "cuda-sm90")
"""Of the builds, in turn: a quarter is the GPUs'."""
MODELS = 8
PRIMARY = "jobs"
SENTINELS, QUORUM = 3, 2
POLL_S = 15.0
WARM_UP_S = 60.0
REFUSED, BURST, BURST_S = 0.01, 0.5, 3.0
"""The share of the store's requests that get 503, always, and for so long in a burst."""
END_S = 300.0
BOUND_MS = 100.0


@dataclass
class Simulation:
    """Servers and processes of the fleet, and what has happened to them."""

    options: argparse.Namespace
    here: Site
    cluster: Cluster
    redis: tuple[Server, Server]
    trouble: Trouble
    database: str
    submits: Submits
    pods: dict[str, Pods]
    apis: list[Any] = field(default_factory=list)
    events: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Load and faults, then the end of every build, and every figure."""
        options = self.options
        kills = Kills(
            self.database,
            self.pods,
            options.kills,
            self.here.settings.max_attempts - 1,
            options.seed,
        )
        every_s = POLL_S / options.speed
        with Autoscaler(self.database, self.pods, every_s) as autoscaler:
            faults = threading.Thread(target=self._fail, name="faults")
            with kills:
                faults.start()
                asyncio.run(self.submits.run(options.rate, options.seconds))
                faults.join()
            used = _processor_seconds(self._kinds())
            self.trouble.refused_share.value = 0.0
            self._wait_for_the_end(autoscaler)
        return {
            **self._describe_load(),
            **self._describe_pods(autoscaler),
            **self._describe_kills(kills),
            **self.events,
            **self._verdict(kills),
            "processor_seconds": {kind: round(seconds, 1) for kind, seconds in used.items()},
        }

    def _kinds(self) -> dict[int, str]:
        workers = (each.pid for pods in self.pods.values() for each in (*pods.alive, *pods.ending))
        mine = {process.pid: "api" for process in self.here.processes}
        return {**mine, **dict.fromkeys(workers, "workers")}

    def _wait_for_the_end(self, autoscaler: Autoscaler) -> None:
        """Until every build has ended and every pool is as small as it may be."""
        loaded, began = self.submits.elapsed, time.monotonic()
        while time.monotonic() < began + END_S:
            left = self._count("state IN ('queued', 'running')")
            if not left and "builds_ended" not in self.events:
                self._note("builds_ended", {"after_s": round(self.submits.elapsed - loaded, 1)})
            if not left and autoscaler.is_at_minimum():
                self._note("pools_at_minimum", {"after_s": round(self.submits.elapsed - loaded, 1)})
                return
            time.sleep(1)
        counts = {name: pods.counts[-1] for name, pods in self.pods.items()}
        self._note("not_at_rest", {"builds": left, "pods": counts})

    def _note(self, name: str, what: dict[str, Any]) -> None:
        self.events[name] = what
        print(f"{name}: {what}", file=sys.stderr, flush=True)

    def _fail(self) -> None:
        """Each fault at its part of the time."""
        timeline: tuple[tuple[float, str, Callable[[], dict[str, Any]]], ...] = (
            (0.25, "store_burst", self._burst),
            (0.4, "api_rolled", self._roll),
            (0.55, "redis_failed_over", lambda: fail_redis_over(*self.redis)),
            (0.7, "postgres_failed_over", self._fail_database_over),
            (0.85, "store_burst_again", self._burst),
        )
        for part, name, fault in timeline:
            time.sleep(max(0.0, part * self.options.seconds - self.submits.elapsed))
            began_s = round(self.submits.elapsed, 1)
            try:
                what = fault()
            except Exception as error:  # shown, and the figures fail without it
                what = {"error": repr(error)}
            self._note(name, {"at_s": began_s, **what})

    def _burst(self) -> dict[str, Any]:
        requests, refused = self.trouble.requests.value, self.trouble.refused.value
        running = self._count("state = 'running'")
        self.trouble.refused_share.value = BURST
        time.sleep(BURST_S)
        self.trouble.refused_share.value = REFUSED
        return {
            "requests": self.trouble.requests.value - requests,
            "refused": self.trouble.refused.value - refused,
            "running_builds": running,
        }

    def _roll(self) -> dict[str, Any]:
        return roll_api(self.submits.urls, self.apis[0], self.here.api, self.submits.answers)

    def _fail_database_over(self) -> dict[str, Any]:
        running, answers = self._count("state = 'running'"), dict(self.submits.answers)
        began = self.submits.elapsed
        what = self.cluster.fail_over()
        accepted = len(self.submits.jobs)
        until(lambda: len(self.submits.jobs) > accepted, 60, "a submit after the failover")
        away = self.submits.elapsed - began
        time.sleep(5)
        after = self.submits.answers
        refused = {name: after[name] - answers.get(name, 0) for name in ("lost", "503")}
        return {**what, "running_builds": running, "accepts_after_s": round(away, 2), **refused}

    def _count(self, condition: str) -> int:
        with psycopg.connect(self.database, connect_timeout=5) as connection:
            row = connection.execute(f"SELECT count(*) FROM builds WHERE {condition}").fetchone()
        return int(row[0]) if row else 0

    def _describe_load(self) -> dict[str, Any]:
        submits, seconds = self.submits, self.options.seconds
        outage = self.events["postgres_failed_over"]
        away_s = outage["at_s"]
        back_s = away_s + outage.get("accepts_after_s", 0.0)
        late = sorted(submits.late_ms)
        before = submits.latencies(WARM_UP_S, away_s - 1)
        return {
            "accepted": len(submits.jobs),
            "given_up": submits.given_up,
            "answers": dict(submits.answers),
            "lost_because": dict(submits.reasons.most_common(5)),
            "surprises": submits.surprises[:5],
            "ms_first_minute": submits.latencies(0, WARM_UP_S),
            "ms_after": submits.latencies(WARM_UP_S, seconds),
            "ms_before_failover_of_database": before,
            "ms_due_while_it_was_away": submits.latencies(away_s, back_s),
            "load_late_ms_p99": round(late[int(0.99 * len(late))], 1),
        }

    def _describe_pods(self, autoscaler: Autoscaler) -> dict[str, Any]:
        total = [sum(counts) for counts in zip(*map(_alive, self.pods.values()), strict=False)]
        return {
            "pods": {
                name: {
                    "most_builds": max(metric for metric, _, _ in pods.counts),
                    "most": max(wanted for _, wanted, _ in pods.counts),
                    "at_end": pods.counts[-1][2],
                    "started": pods.started,
                    "replaced": pods.replaced,
                }
                for name, pods in self.pods.items()
            },
            "most_pods": max(total),
            "looks_without_database": autoscaler.failures,
        }

    def _describe_kills(self, kills: Kills) -> dict[str, Any]:
        busy = sum(kills.busy) / max(1, len(kills.busy))
        killed = kills.of_pool.total()
        share = killed / max(1e-9, busy * self.options.seconds / 60)
        return {
            "busy_workers_mean": round(busy, 1),
            "killed": dict(kills.of_pool),
            "killed_without_a_build": kills.missed,
            "killed_share_of_busy_a_minute": round(share, 3),
            "builds_that_lost_a_worker": len(kills.hit),
        }

    def _verdict(self, kills: Kills) -> dict[str, Any]:
        """Counts of what must not be, over every accepted job."""
        jobs, hit = list(set(self.submits.jobs)), list(kills.hit)
        with psycopg.connect(self.database) as connection:

            def count(query: str, *arguments: Any) -> int:
                row = connection.execute(query, arguments).fetchone()
                return int(row[0]) if row else 0

            mine = "id = ANY(%s)"
            ends = (
                "SELECT count(*) FROM (SELECT job_id FROM events WHERE type = 'job.finished' "
                "AND job_id = ANY(%s) GROUP BY job_id HAVING count(*) = 1) once"
            )
            twice = (
                "SELECT count(*) FROM (SELECT action_key FROM builds WHERE artifact IS NOT NULL "
                "GROUP BY action_key HAVING count(DISTINCT artifact ->> 'digest') > 1) t"
            )
            compiled = "SELECT count(DISTINCT action_key) FROM builds WHERE state = 'succeeded'"
            given_back = (
                "SELECT count(DISTINCT b.id) FROM builds b JOIN events e ON e.job_id = b.job_id "
                "WHERE b.id = ANY(%s) AND e.type = 'build.queued' "
                "AND e.data ->> 'reason' LIKE '%%stopped responding%%'"
            )
            return {
                "jobs": len(jobs),
                "lost": len(jobs) - count(f"SELECT count(*) FROM jobs WHERE {mine}", jobs),
                "not_succeeded": count(
                    f"SELECT count(*) FROM jobs WHERE {mine} AND state <> 'succeeded'", jobs
                ),
                "not_ended_once": len(jobs) - count(ends, jobs),
                "published_twice": count(twice),
                "bundles": count(compiled),
                "compiles": sum(self.here.compiles().values()),
                "cached": count("SELECT count(*) FROM builds WHERE cached"),
                "builds_given_back_after_a_kill": count(given_back, hit),
                "store_requests": self.trouble.requests.value,
                "store_refusals": self.trouble.refused.value,
                "store_delay_ms_mean": round(
                    self.trouble.delayed_s.value * 1000 / max(1, self.trouble.requests.value), 1
                ),
            }


def _alive(pods: Pods) -> list[int]:
    return [alive for _, _, alive in pods.counts]


def _processor_seconds(kinds: Mapping[int, str]) -> dict[str, float]:
    """Processor time so far by kind of process; that of processes that have ended is left out."""
    used = dict.fromkeys(("load", *sorted(set(kinds.values())), "servers"), 0.0)
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        is_load = process.pid == os.getpid()
        used["load" if is_load else kinds.get(process.pid, "servers")] += times.user + times.system
    return used


@contextmanager
def simulation(folder: Path, options: argparse.Namespace) -> Iterator[Simulation]:
    """The servers, two API processes, and pools without workers yet."""
    pools = _scale_pools(options.workers)
    with ExitStack() as stack:
        enter = stack.enter_context
        store = enter(s3_server())
        address = store.endpoint.removeprefix("http://").split(":")
        endpoint, trouble = enter(unreliable_store((address[0], int(address[1])), options.seed))
        # Processes of the site inherit them.
        os.environ.update({**store.environment, "AWS_ENDPOINT": endpoint})
        primary = enter(postgres_process())
        with psycopg.connect(primary.url, autocommit=True) as operator:
            operator.execute("CREATE DATABASE jobs")
        cluster = Cluster(primary, enter(postgres_replica(primary)))
        cluster.wait_for_commits()
        hosts = ",".join(
            f"127.0.0.1:{make_url(each.url).port}" for each in (primary, cluster.replica)
        )
        database = f"postgresql://relaxd@{hosts}/jobs"
        broker = enter(redis_process())
        port = make_url(broker.url).port or 0
        heir = enter(redis_process(None, "--replicaof", f"127.0.0.1 {port}"))
        sentinels = [enter(redis_sentinel(port, PRIMARY, QUORUM)) for _ in range(SENTINELS)]
        ports = [make_url(sentinel.url).port or 0 for sentinel in sentinels]
        until(lambda: all(map(_knows_all, ports)), 30, "Sentinels that know each other")
        here = enter(
            site(
                folder,
                database_url=database,
                broker_url=f"sentinel://{','.join(f'127.0.0.1:{each}' for each in ports)}/0"
                f"?master_name={PRIMARY}",
                store_url="s3://relaxd/simulation",
                pools=setting_of(pools),
                lease_s=options.lease_s,
                sweep_s=5,
                ring_after_s=Settings.model_fields["ring_after_s"].default,
            )
        )
        trouble.refused_share.value = REFUSED
        models = _push_models(here, options.longer)
        apis = [here.api() for _ in range(2)]
        behaviors = dict(read_behaviors(pools, options.speed))
        pods = {
            name: Pods(pool, Replicas(behaviors[name]), lambda pool: _start_worker(here, pool))
            for name, pool in pools.items()
        }
        submits = Submits([url for _, url in apis], _bodies(models), options.new, options.seed)
        query = f"{database}?target_session_attrs=read-write"
        yield Simulation(
            options, here, cluster, (broker, heir), trouble, query, submits, pods, apis
        )


def _knows_all(port: int) -> bool:
    """True if the Sentinel at that port knows the replica and the other Sentinels."""
    with redis.Redis(port=port) as client:
        seen = client.sentinel_sentinels(PRIMARY), client.sentinel_slaves(PRIMARY)
    return list(map(len, seen)) == [SENTINELS - 1, 1]


def _scale_pools(workers: int) -> dict[str, Pool]:
    """POOLS with so many workers at the most, each pool its share of them."""
    part = workers / sum(pool.max for pool in POOLS.values())
    return {
        name: pool.model_copy(
            update={
                "max": max(pool.min, 1, round(pool.max * part)),
                "above": round(pool.above * part),
            }
        )
        for name, pool in POOLS.items()
    }


def _push_models(here: Site, longer: float) -> list[str]:
    """Models that take 4 to 18 s to compile, or `longer` times that; their digests."""
    texts = [model(here.ledger, longer * (4.0 + 2 * number)) for number in range(MODELS)]
    for text in texts:
        here.services.store.blobs.put(text)
    return [digest_of(text) for text in texts]


def _bodies(models: list[str]) -> Callable[[int], dict[str, Any]]:
    def body(key: int) -> dict[str, Any]:
        return {
            "model": models[key % MODELS],
            "dims": {"batch": f"1:{key + 1}"},
            "targets": [TARGETS[key % len(TARGETS)]],
        }

    return body


def _start_worker(here: Site, pool: Pool) -> Any:
    changed: Mapping[str, Any] = {"capabilities": pool.capabilities, "drain_s": pool.drain_s}
    return here.start(stub_worker.work_for_pool, 1, **changed)


def is_held(figures: Mapping[str, Any]) -> bool:
    """True if nothing was lost, every fault fell on something, and submits were fast enough."""
    bad = ("lost", "not_succeeded", "not_ended_once", "published_twice", "given_up")
    faults = (figures[name] for name in figures if name.endswith(("over", "rolled", "burst")))
    return (
        not any(figures[name] for name in bad)
        and not figures["surprises"]
        and not any("error" in fault for fault in faults)
        and "pools_at_minimum" in figures
        and figures["builds_given_back_after_a_kill"] == figures["builds_that_lost_a_worker"]
        and figures["ms_after"].get("p99", BOUND_MS) < BOUND_MS
    )


def main() -> int:
    """Print the figures as one JSON document; 0 where all that is promised holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.simulation")
    parser.add_argument("--rate", type=float, default=200, help="submits a second")
    parser.add_argument("--new", type=float, default=4.5, help="of them without an equal before")
    parser.add_argument("--longer", type=float, default=1, help="compiles than 4 to 18 s, times")
    parser.add_argument("--seconds", type=float, default=360)
    parser.add_argument("--workers", type=int, default=50, help="of all pools, at the most")
    parser.add_argument("--kills", type=float, default=0.05, help="share of busy workers a minute")
    parser.add_argument("--speed", type=float, default=10, help="of the autoscaler's times")
    parser.add_argument("--lease-s", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for logs, in place of a temporary one")
    options = parser.parse_args()
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="relaxd-simulation-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with simulation(folder, options) as fleet:
            figures = fleet.run()
    settings = {key: str(value) for key, value in vars(options).items()}
    figures |= {"options": settings, "loadavg": {"before": before, "after": os.getloadavg()}}
    figures["held"] = is_held(figures)
    print(json.dumps(figures, indent=2))
    return 0 if figures["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
