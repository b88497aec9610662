"""Rows about the servers that a service stands on: the broker and the databases go away."""

import itertools
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import redis

from tests.robustness.clients import Clients
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.site import BAD, START_S, Scaled, Site, scaled_site, site, until
from tests.robustness.stub import model

CONSUMING_S = 60.0
FLUSH_EVERY = 4
"""Of so many faults of the broker, the last is a flush, the others kill it."""


def broker(run: Run) -> Outcome:
    """Redis is killed and flushed while jobs are submitted; after each fault the queue runs dry, so
    that the next job is only found by its doorbell.
    """
    draw, ids, waits = random.Random(run.seed), list[str](), list[float]()
    kills = flushes = 0
    with scaled_site(run.folder, lease_s=30, ring_after_s=5) as scaled:
        here, workers = scaled.site, [scaled.site.worker() for _ in range(2)]
        here.wait_until_workers(2)
        for number in range(run.count):
            load = [_submit(here, f"{number}-{turn}", draw) for turn in range(4)]
            if number % FLUSH_EVERY == FLUSH_EVERY - 1:
                _flush(scaled)
                flushes += 1
            else:
                scaled.redis.end(signal.SIGKILL)
                load.append(_submit(here, f"{number}-unheard", draw))
                scaled.redis.start()
                kills += 1
            ids += load
            here.end_of(load)
            waits.append(_seconds_until_consumed(here, ids, f"{number}-probe"))
        verdict = here.verdict(ids, here.end_of(ids))
        died = sum(not worker.is_alive() for worker in workers)
    counts = {
        "kills": kills,
        "flushes": flushes,
        **verdict,
        "longest wait in seconds": round(max(waits), 1),
        "workers that ended": died,
    }
    return Outcome(not died and not any(verdict[bad] for bad in BAD), counts)


def _submit(here: Site, key: str, draw: random.Random) -> str:
    return here.submit(model(here.ledger, draw.uniform(0, 0.5), key=key)).id


def _flush(scaled: Scaled) -> None:
    with redis.Redis.from_url(scaled.redis.url) as client:
        client.flushall()


def _seconds_until_consumed(here: Site, ids: list[str], key: str) -> float:
    began = time.monotonic()
    ids.append(here.submit(model(here.ledger, key=key)).id)
    here.end_of(ids[-1:], CONSUMING_S)
    return time.monotonic() - began


def postgresql(run: Run) -> Outcome:
    """PostgreSQL ends, at times without a farewell, and comes back within two seconds."""
    draw = random.Random(run.seed)
    with scaled_site(run.folder, lease_s=30) as scaled:
        here, workers = scaled.site, [scaled.site.worker() for _ in range(2)]
        api, url = here.api()
        here.wait_until_workers(2)
        with Clients(here, url) as clients:
            for number in range(run.count):
                accepted = len(clients.accepted)
                until(partial(clients.have, accepted + 5), START_S, "accepted jobs")
                scaled.postgres.end(signal.SIGQUIT if number % 2 else signal.SIGINT)
                time.sleep(draw.uniform(0, 2))
                scaled.postgres.start()
        ids = list(clients.accepted.values())
        verdict = here.verdict(ids, here.end_of(ids))
        died = sum(not process.is_alive() for process in (api, *workers))
    return _judged(clients, {"restarts": run.count, **verdict, "processes that ended": died}, died)


def _judged(clients: Clients, counts: dict[str, int], wrong: int) -> Outcome:
    answers = {
        "answers": clients.answers.total(),
        "retryable 503": clients.answers["503"] - len(clients.surprises),
        "lost connections": clients.answers["lost"],
        "other 5xx": len(clients.surprises),
    }
    stored = not wrong and not clients.surprises and not any(counts[bad] for bad in BAD)
    return Outcome(stored, {**counts, **answers}, "\n".join(clients.surprises[:10]))


def sqlite(run: Run) -> Outcome:
    """API and worker are killed while one of them is in the middle of a write."""
    draw = random.Random(run.seed)
    in_hand: set[tuple[str, str]] = set()
    with site(run.folder, lease_s=30) as here:
        processes, corrupt = _pair(here), 0
        with Clients(here, processes[1], limit=5 * run.count) as clients:
            for _ in range(run.count):
                accepted = len(clients.accepted) + 1
                until(partial(clients.have, accepted), START_S, "accepted jobs")
                time.sleep(draw.uniform(0, 0.1))
                _kill_in_mid_write(here, processes[0])
                corrupt += not _is_sound(here)
                in_hand |= set(here.running().items())
                processes = _pair(here)
                clients.url = processes[1]
        ids = list(clients.accepted.values())
        verdict = here.verdict(ids, here.end_of(ids), Counter(build for build, _ in in_hand))
    counts = {"kills": run.count, "builds in hand": len(in_hand), "corrupt": corrupt, **verdict}
    return _judged(clients, counts, corrupt)


def _pair(here: Site) -> tuple[list[BaseProcess], str]:
    """An API and a worker, and the API's URL."""
    worker = here.worker()
    api, url = here.api()
    return [api, worker], url


def _kill_in_mid_write(here: Site, processes: list[BaseProcess]) -> None:
    """Stop the processes until one of them is found in a writing transaction; kill them then."""
    pids = [process.pid for process in processes if process.pid is not None]
    for pause in itertools.repeat(0.003):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        if _is_written_to(_file(here)):
            break
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(pause)
    for process in processes:
        process.kill()
        process.join()


def _file(here: Site) -> Path:
    return here.settings.data_dir / "jobs.sqlite"


def _is_written_to(file: Path) -> bool:
    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return False
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()


def _is_sound(here: Site) -> bool:
    connection = sqlite3.connect(_file(here))
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    finally:
        connection.close()


ROWS = (
    Row(
        "broker",
        "Redis killed 30 times and flushed 10 times under load: no job is lost, and a doorbell is "
        f"answered again within {CONSUMING_S:g} s",
        40,
        broker,
        unproven="a Redis that answers slowly or loses only some messages.",
        fewest=FLUSH_EVERY,
        minimums={"kills": 1 - 1 / FLUSH_EVERY, "flushes": 1 / FLUSH_EVERY},
        maximums={"longest wait in seconds": CONSUMING_S},
    ),
    Row(
        "postgresql",
        "PostgreSQL restarted 20 times under load: no job is lost, clients see retryable errors "
        "alone, no process of the service ends",
        20,
        postgresql,
        unproven="a loss of power: the server's processes end, their files stay. A failover to a "
        "replica that lags.",
        minimums={"retryable 503": 1, "jobs": 5},
    ),
    Row(
        "sqlite",
        "API and worker killed 100 times in the middle of a write to SQLite: no accepted job is "
        "lost, unless each attempt of its build lost the worker, the file stays sound, clients "
        "see retryable errors alone",
        100,
        sqlite,
        unproven="a loss of power: what was written before the kill is in the kernel's cache.",
        minimums={"jobs": 1, "builds in hand": 0.1},
    ),
)
