"""A collection of a month's jobs, on generated tables in PostgreSQL and a stub of an object store.

One job of ten compiles: a model, a bundle of five files, a bill of materials and an index. The
oldest day is past its retention. Two processes sweep, one of which is killed in the middle, beside
uploads.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import psutil
import psycopg
from sqlalchemy import func, select

from artifacts import open_store
from artifacts.parallel import AT_ONCE
from artifacts.store import BlobStore
from relaxd.contract.canonical import digest_of
from service.core import Core
from service.db.engine import Database
from service.db.schema import blobs, builds, edges, garbage, holdings, jobs
from service.db.upgrade import upgrade
from service.identity import DEFAULT
from service.settings import Settings
from service.usecases import chores
from service.usecases.store import catalog, collecting, expiring, marking, sweeping
from service.usecases.store import holdings as rights
from tests.service.fakes import FakeCompiler, FakeDoorbell
from tests.service.servers import fresh_database, postgres_process

DAY_S = 86400
FILLED = ("jobs", "builds", "events", "blobs", "holdings", "edges", "records")
SERVER = {
    "shared_buffers": "2GB",
    "effective_cache_size": "8GB",
    "work_mem": "64MB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "4GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
"""PostgreSQL as one would set it up on a machine of its own with 16 GB; fsync is off."""
FILLING = 2
"""Tables that are filled at once."""
RETENTION_DAYS = 30
JOBS_A_COMPILE = 10
UPLOAD_S = 0.1
KINDS = ("model", "bundle", "index", "sbom", "text", *(f"file{number}" for number in range(5)))
PARTS = (
    *(("bundle", f"file{number}", False) for number in range(5)),
    ("index", "bundle", False),
    ("sbom", "text", False),
    ("sbom", "bundle", False),
    ("bundle", "sbom", True),
)
"""Of each compile: what refers to what, and whether as a referrer."""


def _digest(kind: str, number: str = "c") -> str:
    return f"'sha256:' || encode(sha256(('{kind} ' || {number})::bytea), 'hex')"


def _inserts(count: int, now: float) -> dict[str, list[str]]:
    """By table, what fills it: `n` is a job, `c` the compile whose result it has."""
    days, compiles = RETENTION_DAYS + 1, count // JOBS_A_COMPILE
    compile_of, job = f"n / {JOBS_A_COMPILE}", "md5('job ' || n)"
    began, step = f"{now - days * DAY_S}::float", days * DAY_S / count
    ended = f"{began} + n * {step}::float"
    touched = f"{began} + c * {JOBS_A_COMPILE * step}::float"
    each = f"generate_series(0, {count} - 1) n"
    every = f"generate_series(0, {compiles} - 1) c"
    return {
        "jobs": [
            "(id, kind, state, model, request, fingerprint, created_at, finished_at, last_seq, "
            f"index_digest) SELECT {job}, 'compile', 'succeeded', {_digest('model', compile_of)}, "
            f"'{{}}', 'f', {ended}, {ended}, 1, {_digest('index', compile_of)} FROM {each}"
        ],
        "builds": [
            "(id, job_id, position, target, capability, state, action_key, artifact, created_at, "
            f"finished_at, rung_at) SELECT {job} || '-0', {job}, 0, 'x86-64-v3', 'x86-64-v3', "
            f"'succeeded', {_digest('key', compile_of)}, jsonb_build_object('digest', "
            f"{_digest('bundle', compile_of)}, 'ref', '', 'size', 1), {ended}, {ended}, 0 "
            f"FROM {each}"
        ],
        "events": [
            "(job_id, seq, time, type, data) "
            f"SELECT {job}, 1, {ended}, 'job.queued', '{{}}' FROM {each}"
        ],
        "blobs": [
            "(digest, size, touched_at, is_read) "
            f"SELECT {_digest(kind)}, 1000, {touched}, true FROM {every}"
            for kind in KINDS
        ],
        "holdings": [
            "(tenant, digest, size, held_at) "
            f"SELECT 'default', {_digest(kind)}, 1000, {touched} FROM {every}"
            for kind in KINDS
        ],
        "edges": [
            "(parent, child, is_referrer) "
            f"SELECT {_digest(parent)}, {_digest(child)}, {is_referrer} FROM {every}"
            for parent, child, is_referrer in PARTS
        ],
        "records": [
            "(kind, name, digest, written_at) "
            f"SELECT 'action', {_digest('key')}, {_digest('bundle')}, {touched} FROM {every}"
        ],
    }


def fill(url: str, count: int) -> None:
    """Write that many jobs and what belongs to them, a table a thread, without indexes, which are
    made of it then.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        indexes, keys = _drop_indexes(connection)
        now = time.time()
        tables = _inserts(count, now)
        with ThreadPoolExecutor(FILLING) as threads:
            done = [
                threads.submit(_fill_table, url, table, inserts, indexes[table])
                for table, inserts in tables.items()
            ]
        for table in done:
            table.result()
        for key in keys:
            connection.execute(key)
        audited = "UPDATE chores SET ran_at = %s WHERE name = 'gc-audit'"
        connection.execute(audited, (now,))


def _fill_table(url: str, table: str, inserts: list[str], indexes: list[str]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        # What is written to a table that the transaction has emptied takes no place in the log.
        with connection.transaction():
            connection.execute(f"TRUNCATE {table}")
            for rows in inserts:
                connection.execute(f"INSERT INTO {table} {rows}")
            for index in indexes:
                connection.execute(index)
        connection.execute(f"VACUUM ANALYZE {table}")


def _drop_indexes(connection: psycopg.Connection[Any]) -> tuple[dict[str, list[str]], list[str]]:
    """Drop indexes and constraints of the tables that are filled; the statements that make them
    again, by table, and those of the foreign keys.
    """
    again: dict[str, list[str]] = defaultdict(list)
    constraints = connection.execute(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), contype = 'f' "
        "FROM pg_constraint WHERE conrelid::regclass::text = ANY(%s) "
        "AND contype IN ('p', 'u', 'f') ORDER BY contype = 'f'",
        (list(FILLED),),
    ).fetchall()
    for table, name, _, _ in reversed(constraints):
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    query = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%s)"
    for table, name, definition in connection.execute(query, (list(FILLED),)).fetchall():
        connection.execute(f"DROP INDEX {name}")
        again[table].append(definition)
    keys: list[str] = []
    for table, name, what, is_foreign in constraints:
        added = f"ALTER TABLE {table} ADD CONSTRAINT {name} {what}"
        (keys if is_foreign else again[table]).append(added)
    return again, keys


class Stub:
    """An object store that has every blob until it is removed, and takes `request_s` a request."""

    def __init__(self, request_s: float) -> None:
        self._request_s = request_s

    def presign(self, digest: str, seconds: float) -> str | None:
        """See BlobStore.presign."""
        return None

    def last_touch(self, digest: str) -> float:
        """A request for the blob, and one for its last touch."""
        time.sleep(2 * self._request_s)
        return 0.0

    def read(self, digest: str) -> bytes:
        """A request for what was uploaded, which is no manifest."""
        time.sleep(self._request_s)
        return b""

    def has(self, digest: str) -> bool:
        """Each blob that is asked for was removed."""
        time.sleep(self._request_s)
        return False

    def discard_many(self, digests: Sequence[str], before: float) -> set[str]:
        """A mark and two looks a blob, AT_ONCE at a time, and two deletions of many."""
        time.sleep(self._request_s * (3 * -(-len(digests) // AT_ONCE) + 2))
        return set(digests)

    def quarantine(self) -> Iterator[Any]:
        """Nothing is corrupt."""
        return iter(())

    def clear_quarantine(self, before: float) -> int:
        """Nothing is corrupt."""
        return 0


def connect(url: str, folder: str, request_ms: float) -> Core:
    """The service's parts over the database and the stub."""
    settings = Settings(data_dir=Path(folder), database_url=url, retention_days=RETENTION_DAYS)
    store = replace(open_store("memory://"), blobs=cast(BlobStore, Stub(request_ms / 1000)))
    return Core(settings, Database(url), store, FakeCompiler(), FakeDoorbell(), time.time)


def sweep_beside(url: str, folder: str, request_ms: float) -> None:
    """Help to sweep as another worker does, until it is killed."""
    core = connect(url, folder, request_ms)
    while True:
        sweeping.help_sweep(core, lambda: None)
        time.sleep(0.1)


@dataclass
class Uploads:
    """Blobs that a tenant puts while a collection runs."""

    core: Core
    digests: list[str]
    stop: threading.Event

    def run(self) -> None:
        """Put one every UPLOAD_S."""
        while not self.stop.wait(UPLOAD_S):
            digest = digest_of(f"upload {len(self.digests)}".encode())
            rights.hold(self.core, DEFAULT, {digest: 1})
            self.digests.append(digest)


@contextmanager
def uploading(core: Core) -> Iterator[list[str]]:
    """Digests of what is uploaded while the block lasts."""
    uploads = Uploads(core, [], threading.Event())
    thread = threading.Thread(target=uploads.run)
    thread.start()
    try:
        yield uploads.digests
    finally:
        uploads.stop.set()
        thread.join()


def _count(core: Core, *tables: Any) -> dict[str, int]:
    with core.reading() as tx:
        counted = {t.name: select(func.count()).select_from(t) for t in tables}
        return {name: tx.connection.execute(q).scalar_one() for name, q in counted.items()}


def _time_steps(steps: dict[str, dict[str, float]]) -> None:
    """Have the steps of collections note their seconds, and the processor time of all."""
    timed = ((expiring, "expire_jobs"), (catalog, "read_new"), (marking, "mark"))
    for module, name in (*timed, (sweeping, "_look_again"), (sweeping, "work")):
        setattr(module, name, _timed(getattr(module, name), name.strip("_"), steps))


def _timed(
    call: Callable[..., Any], name: str, steps: dict[str, dict[str, float]]
) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        began, used = time.monotonic(), _processor_seconds()
        try:
            return call(*arguments, **options)
        finally:
            steps[name] = {"seconds": round(time.monotonic() - began, 1)} | _used_since(used)
            print(name, steps[name], file=sys.stderr, flush=True)

    return timed


def _used_since(before: dict[str, float]) -> dict[str, float]:
    return {kind: round(seen - before[kind], 1) for kind, seen in _processor_seconds().items()}


def _processor_seconds() -> dict[str, float]:
    """Processor time so far of the database, and of those that collect."""
    used = {"postgresql": 0.0, "workers": 0.0}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            kind = "postgresql" if "postgres" in process.name() else "workers"
            used[kind] += times.user + times.system + times.children_user + times.children_system
    return used


def _kill_in_the_middle(core: Core, helper: Any, marked: int) -> int:
    """Kill the helper once a third is removed; how many were by then."""
    while True:
        with core.reading() as tx:
            removed = select(func.count()).where(garbage.c.is_removed)
            count = int(tx.connection.execute(removed).scalar_one())
        if count > marked / 3:
            helper.kill()
            return count
        time.sleep(1)


def measure(url: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fill the tables and collect; every figure by name."""
    core, steps = connect(url, folder, options.request_ms), dict[str, dict[str, float]]()
    upgrade(core.db)
    began = time.monotonic()
    fill(url, options.jobs)
    filled = round(time.monotonic() - began, 1)
    print(f"filled in {filled} s", file=sys.stderr, flush=True)
    tables = (jobs, builds, blobs, edges, holdings)
    before = _count(core, *tables)
    _time_steps(steps)
    spawning = multiprocessing.get_context("spawn")
    arguments = (url, folder, options.request_ms)
    helper = spawning.Process(target=sweep_beside, args=arguments, daemon=True)
    helper.start()
    expected = before["blobs"] // (RETENTION_DAYS + 1)
    killed: list[int] = []
    killing = threading.Thread(
        target=lambda: killed.append(_kill_in_the_middle(core, helper, expected)), daemon=True
    )
    killing.start()
    with uploading(core) as uploaded:
        began, used = time.monotonic(), _processor_seconds()
        done = collecting.run(core)
        took = round(time.monotonic() - began, 1)
        worked = _used_since(used)
    with core.reading() as tx:
        rows = set(
            tx.connection.scalars(select(blobs.c.digest).where(blobs.c.digest.in_(uploaded)))
        )
    return {
        "fill_seconds": filled,
        "seconds": took,
        "steps": steps,
        "processor_seconds": worked,
        "database_bytes": _database_bytes(url),
        "before": before,
        "after": _count(core, *tables),
        "removed_blobs": done.removed_blobs,
        "expired_jobs": done.expired_jobs,
        "removed_when_one_was_killed": killed,
        "needed_and_gone": _missing(core),
        "uploaded": len(uploaded),
        "uploaded_and_gone": len(set(uploaded) - rows),
    }


def _database_bytes(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row
    return int(row[0])


def _missing(core: Core) -> int:
    """How many blobs jobs and bundles name that have no row."""
    limits = collecting._limits(core)
    named = [*marking.root_queries(core, limits.began_at), marking._young(limits)]
    with core.reading() as tx, marking.needed_blobs(tx, *named) as needed:
        beside = needed.outerjoin(blobs, blobs.c.digest == needed.c.digest)
        lost = select(func.count()).select_from(beside).where(blobs.c.digest.is_(None))
        return int(tx.connection.execute(lost).scalar_one())


def main() -> None:
    """Print the figures as one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.collection")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="of 31 days")
    parser.add_argument("--request-ms", type=float, default=5, help="of the object store")
    options = parser.parse_args()
    chores.LEASE_S = 10.0
    before = os.getloadavg()
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-scale-") as folder,
        postgres_process(settings=SERVER) as server,
        fresh_database(server.url, "collection") as url,
    ):
        figures = measure(url, folder, options)
    figures |= {"options": vars(options), "loadavg": {"before": before, "after": os.getloadavg()}}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
