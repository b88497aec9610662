"""A row about a tenant that attacks its neighbours by all that its token allows, and more."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from service.api.scopes import NEEDS
from service.db.schema import holdings, metadata
from service.identity import Limits, Scope
from service.usecases.tenants import tenants, tokens
from tests.robustness.row import Outcome, Row, Run, p99
from tests.robustness.site import Site, site
from tests.robustness.stub import model
from tests.support import plain_http

QUOTA_MIB = 64
RESULT_MIB = 4
"""More than the largest bundle here: the result of a build that runs is kept beyond the quota."""
ROWS_MIB = 4
"""For the rows of the database that are its own, those of the audit log among them."""
MOST_P99_MS = 200
PAUSE_S = 0.1
ALONE_S = 5.0
LEAST_S = 20
TIMEOUT_S = 60.0
MIB = 1 << 20


@dataclass
class Neighbour:
    """Another tenant, which submits a job each PAUSE_S; `seconds`: what each took."""

    here: Site
    http: httpx.Client
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _number: int = 0

    def submit(self) -> None:
        """Send a model, and time it."""
        self._number += 1
        content = model(self.here.ledger, key=f"neighbour {self._number}")
        files: dict[str, Any] = {"model": ("m.onnx", content), "request": (None, "{}")}
        began = time.monotonic()
        try:
            answer = self.http.post("/v1/compile", files=files)
        except httpx.HTTPError as error:
            self.wrong.append(f"a submit had no answer: {error!r}")
        else:
            if answer.status_code != 202:
                self.wrong.append(
                    f"a submit was answered {answer.status_code}: {answer.text[:300]}"
                )
        self.seconds.append(time.monotonic() - began)

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Submit for as long as the context lasts."""
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(PAUSE_S):
                self.submit()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@dataclass
class Disk:
    """The largest size of all files below a folder while they are watched."""

    folder: Path
    most: int = 0

    @contextmanager
    def watch(self) -> Iterator["Disk"]:
        """Look at it each second for as long as the context lasts."""
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(1):
                self.most = max(self.most, _size(self.folder))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()
            self.most = max(self.most, _size(self.folder))


def _stored(here: Site, tenant: str) -> int:
    """The bytes on disk of the blobs that the tenant holds."""
    query = select(holdings.c.digest).where(holdings.c.tenant == tenant)
    with here.services.core.reading() as tx:
        digests = {digest.rpartition(":")[2] for digest in tx.connection.scalars(query)}
    blobs = here.settings.data_dir / "store" / "blobs"
    files = (path for path in blobs.rglob("*") if path.name in digests)
    return sum(path.stat().st_blocks * 512 for path in files)


def _database(here: Site, tenant: str) -> int:
    """The bytes of SQLite's file that the tenant's rows take: those that a copy without is smaller
    by.
    """
    copy = here.settings.data_dir / "copy.sqlite"
    with closing(sqlite3.connect(here.settings.data_dir / "jobs.sqlite")) as database:
        database.execute("VACUUM INTO ?", (str(copy),))
    size = copy.stat().st_size
    with closing(sqlite3.connect(copy)) as database:
        _drop_rows(database, tenant)
        database.commit()
        database.execute("VACUUM")
    without = copy.stat().st_size
    copy.unlink()
    return size - without


def _drop_rows(database: sqlite3.Connection, tenant: str) -> None:
    """Drop the rows of the tenant, and those of blobs that nobody else holds."""
    its_jobs = "SELECT id FROM jobs WHERE tenant = ?"
    database.execute(f"DELETE FROM events WHERE job_id IN ({its_jobs})", (tenant,))
    for table in metadata.sorted_tables:
        if "tenant" in table.columns:
            database.execute(f"DELETE FROM {table.name} WHERE tenant = ?", (tenant,))
    database.execute("DELETE FROM blobs WHERE digest NOT IN (SELECT digest FROM holdings)")
    database.execute("DELETE FROM edges WHERE parent NOT IN (SELECT digest FROM blobs)")


def _size(folder: Path) -> int:
    total = 0
    for position, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(position, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def attacked_neighbours(run: Run) -> Outcome:
    """One tenant attacks for `count` seconds while another submits."""
    with site(run.folder, token="the operator's", lease_s=30) as here:
        core = here.services.core
        worker = here.worker()
        api, url = here.api()
        here.wait_until_workers(1)
        for name in ("attacker", "neighbour"):
            tenants.create(core, name)
        limits = Limits(stored_bytes=QUOTA_MIB * MIB, running=1, queued=50)
        tenants.change(core, "attacker", limits=limits)
        attackers, neighbours = (
            tokens.create(core, name, "t", (Scope.SUBMIT,)).text
            for name in ("attacker", "neighbour")
        )
        headers = {"Authorization": f"Bearer {neighbours}"}
        with plain_http.Client(base_url=url, headers=headers, timeout=TIMEOUT_S) as http:
            alone, beside = Neighbour(here, http), Neighbour(here, http, _number=10**6)
            with alone.submitting():
                time.sleep(ALONE_S)
            with beside.submitting(), Disk(here.settings.upload_dir).watch() as disk:
                done = _attack(url, attackers, run)
            stored = disk.most + _stored(here, "attacker")
            rows = _database(here, "attacker")
        alive = api.is_alive() and worker.is_alive()
    wrong = [*alone.wrong, *beside.wrong, *done["wrong"]]
    wrong += [] if alive else ["a process of the service ended"]
    wrong += [
        f"{method} {path} was never sent"
        for method, path in NEEDS
        if not done["routes"].get(f"{method} {path}")
    ]
    figures = {
        "requests": sum(done["statuses"].values()),
        **{f"status {status}": count for status, count in sorted(done["statuses"].items())},
        "submits": len(beside.seconds),
        "p99 ms alone": round(1000 * p99(alone.seconds)),
        "p99 ms": round(1000 * p99(beside.seconds)),
        "MiB of disk": stored // MIB,
        "KiB of rows": rows // 1024,
    }
    return Outcome(not wrong, figures, "\n".join(wrong[:20]))


def _attack(url: str, token: str, run: Run) -> Any:
    module = [sys.executable, "-m", "tests.robustness.tenant_attack"]
    command = [*module, url, token, "attacker", str(run.count), str(run.seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


ROWS = (
    Row(
        "attacked-neighbours",
        "a tenant with the scope `submit` alone tries every endpoint from many connections for so "
        f"many seconds: p99 of another's submits is at most {MOST_P99_MS} ms, it takes no more "
        f"disk than its quota of {QUOTA_MIB} MiB and the result of the one build that it may have "
        f"running ({RESULT_MIB} MiB at most), its rows in the database take at most {ROWS_MIB} "
        "MiB, and no request is answered 500",
        600,
        attacked_neighbours,
        "One API process on SQLite; clients and service share the machine. Builds are stubs.",
        fewest=LEAST_S,
        minimums={"requests": 10, "submits": 2},
        maximums={
            "p99 ms": MOST_P99_MS,
            "MiB of disk": QUOTA_MIB + RESULT_MIB,
            "KiB of rows": ROWS_MIB * 1024,
        },
    ),
)
