import threading

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select, text

from service.db.engine import Database
from service.db.schema import jobs, metadata, pins, tenants
from service.db.upgrade import config, upgrade
from service.errors import DatabaseTooNew


def test_the_migrations_make_the_tables_that_the_code_expects(empty_url):
    db = Database(empty_url)
    upgrade(db)
    upgrade(db)
    with db.read() as connection:
        assert (
            compare_metadata(
                MigrationContext.configure(connection, opts={"compare_type": True}), metadata
            )
            == []
        )
        (index,) = [
            index
            for index in inspect(connection).get_indexes("builds")
            if index["name"] == "uq_builds_running_key"
        ]
        assert index["unique"]
    db.close()


def test_tables_of_this_release_are_left_to_themselves(empty_url, monkeypatch):
    """Reading the migrations takes a third of the time in which a process starts."""
    db = Database(empty_url)
    upgrade(db)
    monkeypatch.setattr(command, "upgrade", lambda *arguments: pytest.fail("migrations are read"))
    upgrade(db)
    db.close()


def test_processes_that_start_at_once_do_not_collide(empty_url):
    databases = [Database(empty_url) for _ in range(6)]
    threads = [threading.Thread(target=upgrade, args=(db,)) for db in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with databases[0].read() as connection:
        assert set(metadata.tables) <= set(inspect(connection).get_table_names())
    for db in databases:
        db.close()


def of_a_newer_release(db, floor):
    with db.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(
            text("UPDATE counters SET value = :floor WHERE name = 'schema_floor'"), {"floor": floor}
        )


def test_tables_of_a_newer_release_are_used_where_it_says_that_they_can_be(empty_url):
    db = Database(empty_url)
    upgrade(db)
    of_a_newer_release(db, floor=3)
    upgrade(db)
    with db.read() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
        row = text("SELECT value FROM counters WHERE name = 'schema_floor'")
        assert connection.scalar(row) == 3
    db.close()


def test_tables_of_a_newer_release_that_says_nothing_are_refused(empty_url):
    db = Database(empty_url)
    upgrade(db)
    of_a_newer_release(db, floor=3)
    with db.write() as connection:
        connection.execute(text("DELETE FROM counters WHERE name = 'schema_floor'"))
    with pytest.raises(DatabaseTooNew):
        upgrade(db)
    db.close()


OLD_JOB = """INSERT INTO jobs (id, kind, state, model, request, idempotency_key, fingerprint,
    created_at) VALUES (:id, 'compile', 'queued', 'sha256:', '{}', :key, 'f', 1)"""
OLD_PIN = """INSERT INTO pins (digest, who, why, created_at) VALUES (:id, 'me', '', 1)"""


def test_the_release_before_tenants_goes_on_beside_this_one(empty_url):
    db = Database(empty_url)
    with db.write() as connection:
        command.upgrade(config(connection), "0003_storage")
        for statement in (OLD_JOB, OLD_PIN):
            connection.execute(text(statement), {"id": "before", "key": "k"})
    upgrade(db)
    with db.write() as connection:
        for statement in (OLD_JOB, OLD_PIN):
            connection.execute(text(statement), {"id": "beside", "key": "l"})
        for table in (jobs, pins):
            assert connection.scalars(select(table.c.tenant)).all() == ["default"] * 2
        assert connection.scalars(select(tenants.c.name)).all() == ["default"]
    db.close()


def test_a_database_of_a_newer_release_is_left_alone(empty_url):
    db = Database(empty_url)
    upgrade(db)
    of_a_newer_release(db, floor=9000)
    with pytest.raises(DatabaseTooNew, match="revision 9999 of a newer relaxd") as refused:
        upgrade(db)
    assert "backup" in refused.value.hint
    db.close()
