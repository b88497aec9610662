"""Statements of earlier releases, as `recording.py` wrote them down, run on this one's tables."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command

from artifacts import open_store
from relaxd.contract.states import State
from service.core import Core
from service.db.engine import Database
from service.db.upgrade import FLOOR, config, upgrade
from service.jobs import Jobs
from service.settings import Settings
from service.usecases.builds import claiming, ending, scheduling
from tests.service.fakes import FakeClock, FakeCompiler, FakeDoorbell

RELEASES = sorted((Path(__file__).parent / "releases").iterdir())
UPGRADED = {"before": 0.0, "in the middle": 0.5, "after": 1.0}


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def db(empty_url: str) -> Iterator[Database]:
    opened = Database(empty_url)
    yield opened
    opened.close()


def statements(release: Path, db: Database) -> list[dict[str, Any]]:
    with db.read() as connection:
        return json.loads((release / f"{connection.dialect.name}.json").read_text())


def replay(db: Database, entries: list[dict[str, Any]]) -> None:
    """Run the statements; each that writes changes as many rows as it did."""
    for entry in entries:
        statement, parameters = entry["statement"], entry["parameters"]
        with db.write() as connection:
            done = connection.exec_driver_sql(statement, driver(parameters))
            if done.returns_rows:
                assert done.fetchall() or statement.startswith("SELECT"), statement
            else:
                assert done.rowcount == entry["rows"], statement


def driver(parameters: Any) -> Any:
    """The parameters of one execution or of many, in the form that a driver takes."""
    if isinstance(parameters, list) and parameters and isinstance(parameters[0], list):
        return [tuple(each) for each in parameters]
    many = isinstance(parameters, list) and parameters and isinstance(parameters[0], dict)
    return parameters if many or isinstance(parameters, dict) else tuple(parameters)


@pytest.mark.parametrize("share", UPGRADED.values(), ids=UPGRADED)
def test_an_earlier_release_works_on_through_the_upgrade(
    release: Path, share: float, db: Database, empty_url: str, tmp_path: Path
) -> None:
    with db.write() as connection:
        command.upgrade(config(connection), release.name)
    entries = statements(release, db)
    first = int(share * len(entries))
    replay(db, entries[:first])
    upgrade(db)
    replay(db, entries[first:])
    this_release_goes_on(db, Settings(data_dir=tmp_path, database_url=empty_url))


def this_release_goes_on(db: Database, settings: Settings) -> None:
    """It reads all that the other left, and builds what the other submitted."""
    clock, store, compiler = FakeClock(1_700_001_000.0), open_store(settings.store), FakeCompiler()
    core = Core(settings, db, store, compiler, FakeDoorbell(), clock)
    jobs = Jobs(core)
    states = [job.state for job in jobs.list()]
    assert sorted(states) == ["cancelled", "cancelled", "queued", "succeeded", "succeeded"]
    for job in jobs.list():
        events = jobs.events(job.id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert jobs.get(job.id) == job
    (waiting,) = [job for job in jobs.list() if job.state is State.QUEUED]
    assert scheduling.next_build(core, ["riscv64"]) == waiting.builds[0].id
    claim = claiming.take(core, waiting.builds[0].id, "new")
    assert claim is not None
    ending.finish(core, claim, ending.CANCELLED)
    assert jobs.get(waiting.id).state is State.CANCELLED


def test_the_floor_names_the_oldest_release_whose_statements_are_replayed() -> None:
    assert int(RELEASES[0].name) == FLOOR
