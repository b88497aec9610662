import sqlite3
import threading
from contextlib import AbstractContextManager, closing

import psycopg
import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError

from service.db.engine import Database
from service.db.schema import workers
from service.db.upgrade import upgrade
from service.errors import DatabaseUnavailable
from tests.service.servers import free_port


@pytest.fixture
def db(database_url):
    db = Database(database_url)
    upgrade(db)
    yield db
    db.close()


def add(connection, name):
    connection.execute(
        insert(workers).values(name=name, hostname="h", capabilities=[], slots=1, seen_at=0)
    )


def count(db):
    with db.read() as connection:
        return len(connection.execute(select(workers)).all())


def test_a_block_that_raises_leaves_nothing(db):
    def add_and_fail():
        with db.write() as connection:
            add(connection, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        add_and_fail()
    assert count(db) == 0


def test_many_writers_at_once_all_get_through(db):
    def write(start):
        for number in range(10):
            with db.write() as connection:
                connection.execute(select(workers)).all()
                add(connection, f"{start}-{number}")

    threads = [threading.Thread(target=write, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(db) == 60


def test_readers_do_not_wait_for_a_writer(db):
    with db.write() as connection:
        add(connection, "a")
        assert count(db) == 0
    assert count(db) == 1


@pytest.mark.parametrize("held_by", ["this process", "another"])
def test_a_write_lock_that_is_held_for_long_is_told_by_name(tmp_path, monkeypatch, held_by):
    monkeypatch.setattr("service.db.engine.BUSY_S", 0.2)
    monkeypatch.setattr("service.db.engine.WRITE_S", 0.2)
    file = tmp_path / "jobs.sqlite"
    db = Database(f"sqlite:///{file}")
    upgrade(db)
    other = sqlite3.connect(file, isolation_level=None)

    def hold() -> AbstractContextManager[object]:
        if held_by == "this process":
            return db.write()
        other.execute("BEGIN IMMEDIATE")
        return closing(other)

    with hold():
        assert count(db) == 0
        for refused in (db.write(), db.write_at_once()):
            with pytest.raises(DatabaseUnavailable) as busy, refused:
                pass
            assert "another process holds its lock" in busy.value.hint
        with pytest.raises(DatabaseUnavailable):
            db.check_writable(text("UPDATE workers SET slots = 1"))
    with db.write() as connection:
        add(connection, "a")
    assert count(db) == 1
    other.close()
    db.close()


def test_sqlite_is_durable_and_in_wal_mode(tmp_path):
    db = Database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with db.read() as connection:
        pragmas = [
            connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    db.close()
    assert pragmas == ["wal", 2, 10000]


@pytest.mark.parametrize(
    "url", ["postgresql://127.0.0.1:{port}/none", "sqlite:////nonexistent/jobs.sqlite"]
)
def test_a_database_that_is_away_is_told_by_name(url):
    db = Database(url.format(port=free_port()))
    with pytest.raises(DatabaseUnavailable) as away:
        db.check_writable(text("SELECT 1"))
    assert "RELAXD_DATABASE_URL" in away.value.hint


@pytest.mark.parametrize(("lost", "raised"), [(True, DatabaseUnavailable), (False, DBAPIError)])
def test_a_lost_connection_is_known_whatever_the_driver_calls_it(tmp_path, lost, raised):
    db = Database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with pytest.raises(raised), db.read():
        raise DBAPIError("SELECT 1", {}, Exception("gone"), connection_invalidated=lost)
    db.close()


def test_a_connection_that_broke_while_nobody_used_it_is_replaced(db, database_url, monkeypatch):
    if db.url.get_backend_name() == "sqlite":
        pytest.skip("SQLite has no connections that break")
    monkeypatch.setattr("service.db.engine.IDLE_S", -1)
    assert count(db) == 0
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    with psycopg.connect(database_url) as operator:
        operator.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    assert count(db) == 0
