import sqlite3

import pytest

from service.db import engine
from service.errors import DatabaseUnavailable
from service.usecases import readiness
from service.usecases.readiness import PROBE, Readiness
from tests.service.servers import read_only


def test_the_answer_is_remembered_for_a_while(core, monkeypatch):
    asked = []
    usual = type(core.db).check_writable
    monkeypatch.setattr(
        type(core.db), "check_writable", lambda self, write: asked.append(usual(self, write))
    )
    asking = Readiness(core)
    for _ in range(3):
        asking.check()
    assert len(asked) == 1
    monkeypatch.setattr(readiness, "REMEMBERED_S", 0)
    for _ in range(2):
        Readiness(core).check()
    assert len(asked) == 3


def test_a_failure_is_remembered_too_and_nothing_is_left_in_the_data_folder(core, monkeypatch):
    with core.reading():  # SQLite makes files of its own beside the database
        pass
    before = set(core.settings.data_dir.iterdir())
    Readiness(core).check()
    assert set(core.settings.data_dir.iterdir()) == before

    def away(self, write):
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(type(core.db), "check_writable", away)
    asking = Readiness(core)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            asking.check()
    assert core.store.blobs.put(PROBE)


def test_a_database_that_takes_no_writes_is_not_ready(core, monkeypatch, database):
    if database == "sqlite":
        pytest.skip("only a server fails over")
    monkeypatch.setattr(readiness, "REMEMBERED_S", 0)
    asking = Readiness(core)
    asking.check()
    with read_only(core.db.url.render_as_string(False)):
        with pytest.raises(DatabaseUnavailable, match="terminating"):
            asking.check()
        with pytest.raises(DatabaseUnavailable, match="read-only") as refused:
            asking.check()
        assert "primary" in refused.value.hint
    asking.check()


def test_a_lock_that_another_process_keeps_is_noticed(core, monkeypatch, database):
    if database != "sqlite":
        pytest.skip("a server locks rows")
    monkeypatch.setattr(engine, "WRITE_S", 0.1)
    other = sqlite3.connect(core.db.url.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="locked"):
        Readiness(core).check()
    other.execute("ROLLBACK")
    other.close()
    Readiness(core).check()
