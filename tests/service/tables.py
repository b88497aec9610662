"""Databases that have all tables already: migrations take as long as most tests of what is done
with the tables.
"""

import tempfile
from functools import cache
from pathlib import Path

import psycopg

from service.db.engine import Database
from service.db.upgrade import upgrade

TEMPLATE = "migrated"
"""The database of a cluster that others are made from."""


@cache
def _sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.sqlite")
        _migrate(f"sqlite:///{path}")
        # The last connection's end writes the log into the file.
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        return path.read_bytes()


def copy_sqlite(path: Path) -> str:
    """The URL of a database with all tables, which is written to the path."""
    path.write_bytes(_sqlite())
    return f"sqlite:///{path}"


def copy_template(admin_url: str) -> None:
    """Add the template to a cluster."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{TEMPLATE}"')
    _migrate(admin_url.rpartition("/")[0] + f"/{TEMPLATE}")


def _migrate(url: str) -> None:
    db = Database(url)
    upgrade(db)
    db.close()
