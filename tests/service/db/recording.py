"""Records every statement that a release of the service runs, for later releases to replay.

In a checkout of the release: `python -m tests.service.db.recording FOLDER` writes
FOLDER/sqlite.json and FOLDER/postgresql.json.
"""

import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from artifacts import open_store
from relaxd.contract.request import CompileRequest
from service.core import Core
from service.db.engine import Database
from service.db.upgrade import upgrade
from service.jobs import Jobs
from service.settings import Settings
from service.usecases.builds import claiming, fleet, reporting, sweeping
from service.workers.runner import Runner
from service.workers.scratch import Workshop
from tests.service.fakes import FakeClock, FakeCompiler, FakeDoorbell
from tests.service.servers import fresh_database, postgres_server

CAPABILITIES = ("x86-64-v2", "x86-64-v3", "aarch64", "riscv64")


def life(core: Core, clock: FakeClock, folder: Path) -> None:
    """Jobs that succeed, are cancelled, are lost and found, and one that stays queued."""
    jobs, model = Jobs(core), core.store.blobs.put(b"a model").digest
    workshop = Workshop(folder / "work", "old")
    runner = Runner(core, workshop, threading.Event(), lambda *ended: None)
    fleet.announce(core, "old", "host", CAPABILITIES, 1)
    created = jobs.submit(model, request("x86-64-v3", "aarch64"), idempotency_key="one")
    jobs.submit(model, request("x86-64-v3", "aarch64"), idempotency_key="one")
    for build in created.builds:
        run(core, runner, build.id)
    jobs.events(created.id)
    jobs.get(created.id)
    jobs.list()
    jobs.targets()
    again = jobs.submit(model, request("aarch64"))
    run(core, runner, again.builds[0].id)
    jobs.cancel(jobs.submit(model, request("aarch64")).id)
    lost = jobs.submit(model, request("x86-64-v2"))
    stored = claiming.take(core, lost.builds[0].id, "old")
    assert stored is not None
    reporting.beat(core, stored)
    jobs.cancel(lost.id)
    clock.advance(1000)
    sweeping.reclaim(core)
    sweeping.ring_again(core, CAPABILITIES, 1)
    fleet.announce(core, "old", "host", CAPABILITIES, 1)
    jobs.submit(model, request("riscv64"), idempotency_key="queued")
    workshop.close()


def request(*targets: str) -> CompileRequest:
    """A request that needs nothing but its targets."""
    return CompileRequest.from_json({"targets": list(targets)})


def run(core: Core, runner: Runner, build_id: str) -> None:
    """Act as a worker for which the doorbell rings."""
    claim = claiming.take(core, build_id, "old")
    assert claim is not None
    runner.run(claim)


@contextmanager
def listening(result: list[dict[str, Any]]) -> Iterator[None]:
    """Statements that run meanwhile, with their parameters and how many rows they changed."""

    def hear(_connection: Any, cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            entry = {"statement": statement, "parameters": plain(parameters)}
            result.append(entry | {"rows": cursor.rowcount})

    event.listen(Engine, "after_cursor_execute", hear)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", hear)


def plain(value: Any) -> Any:
    """Parameters as JSON: a driver's wrapper around a document becomes the document's text."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "obj"):
        return json.dumps(value.obj)
    return value


def record(url: str) -> list[dict[str, Any]]:
    """The statements of `life` on an empty database, without those of the migrations."""
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(data_dir=Path(name), database_url=url, max_attempts=2, lease_s=30)
        db, clock, compiler = Database(settings.database), FakeClock(), FakeCompiler()
        upgrade(db)
        core = Core(settings, db, open_store(settings.store), compiler, FakeDoorbell(), clock)
        result: list[dict[str, Any]] = []
        with listening(result):
            life(core, clock, Path(name))
        db.close()
        return result


def write(path: Path, created: list[dict[str, Any]]) -> None:
    """One statement a line."""
    path.write_text("[\n" + ",\n".join(map(json.dumps, created)) + "\n]\n")


def main() -> None:
    """Writes both files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        created = record(f"sqlite:///{name}/jobs.sqlite")
    write(folder / "sqlite.json", created)
    with postgres_server() as cluster, fresh_database(cluster, "recorded") as url:
        created = record(url)
    write(folder / "postgresql.json", created)


if __name__ == "__main__":
    main()
