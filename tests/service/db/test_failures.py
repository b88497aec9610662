"""Failures of databases, by the codes of their drivers."""

import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from service.db.engine import Database
from service.db.failures import classify
from service.db.upgrade import upgrade
from service.errors import DatabaseDamaged, DatabaseUnavailable, InvalidSettings

PASSING = {
    "25006": "primary",
    "53300": "max_connections",
    "53100": "relaxd gc",
    "53200": "resource",
    "57P01": "stopping",
    "57P03": "stopping",
    "40P01": "try again",
    "40001": "try again",
    "55P03": "try again",
    "57014": "try again",
    "08006": "try again",
    "58030": "log",
    "XX000": "log",
}


@pytest.mark.parametrize(("state", "hint"), PASSING.items())
def test_what_may_pass_is_told_by_its_sqlstate(state, hint):
    error = classify(DBAPIError("UPDATE x", {}, psycopg.errors.lookup(state)("no")))
    assert type(error) is DatabaseUnavailable
    assert hint in error.hint


@pytest.mark.parametrize("state", ["XX001", "XX002"])
def test_damage_does_not_pass(state):
    error = classify(DBAPIError("UPDATE x", {}, psycopg.errors.lookup(state)("no")))
    assert type(error) is DatabaseDamaged


@pytest.mark.parametrize("state", ["42P01", "23505", "22001"])
def test_mistakes_of_ours_stay_what_they_are(state):
    assert classify(DBAPIError("UPDATE x", {}, psycopg.errors.lookup(state)("no"))) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SQLITE_FULL", "relaxd gc"),
        ("SQLITE_READONLY_DBMOVED", "permissions"),
        ("SQLITE_BUSY", "lock"),
    ],
)
def test_sqlite_tells_by_the_names_of_its_codes(name, hint):
    error = sqlite3.OperationalError("no")
    error.sqlite_errorname = name
    assert hint in classify(DBAPIError("UPDATE x", {}, error)).hint


@pytest.mark.parametrize("how", ["no database", "torn"])
def test_a_damaged_file_is_told_by_name(tmp_path, how):
    path = tmp_path / "jobs.sqlite"
    db = Database(f"sqlite:///{path}")
    upgrade(db)
    db.close()
    good = path.read_bytes()
    path.write_bytes(b"x" * 5000 if how == "no database" else good[:4096] + b"\xff" * 4096 * 6)
    db = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseDamaged) as damaged:
        upgrade(db)
    assert "backup" in damaged.value.hint
    db.close()


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "nothing", "oracle://h", "sqlite:x"])
def test_a_url_of_another_kind_is_refused_without_its_password(url):
    with pytest.raises(InvalidSettings, match="RELAXD_DATABASE_URL") as refused:
        Database(url)
    assert "secret" not in str(refused.value)
