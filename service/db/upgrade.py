"""Migrates a database's tables, safely when several processes start at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select, text

from service.db.engine import Database
from service.db.schema import counters
from service.errors import DatabaseTooNew

_LOCK = 0x72656C6178  # "relax"
FLOOR = 2
"""The revision of the oldest release that works on the tables of this one. A migration after which
that release's statements fail raises it: what is to be dropped is first no longer used, for one
release.
"""
_FLOOR_ROW = "schema_floor"


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, with the connection to work on."""
    found = Config()
    found.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    found.attributes["connection"] = connection
    return found


def upgrade(db: Database) -> None:
    """Run the missing migrations in one transaction, which other processes wait for. A newer
    release's tables stay as they are, and are used where that release says that this one can.
    Raises DatabaseUnavailable, DatabaseTooNew.
    """
    with db.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if newer := _newer(connection):
            _check_usable(connection, newer)
            return
        command.upgrade(config(connection), "head")
        _write_floor(connection)


def _newer(connection: Connection) -> str | None:
    """The revision of the tables if this release does not know it."""
    known = {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}
    current = MigrationContext.configure(connection).get_current_heads()
    return next((revision for revision in current if revision not in known), None)


def _check_usable(connection: Connection, revision: str) -> None:
    head = str(ScriptDirectory.from_config(config()).get_current_head())
    floor = None
    if inspect(connection).has_table(counters.name):
        floor = connection.scalar(select(counters.c.value).where(counters.c.name == _FLOOR_ROW))
    if floor is None or _number(head) < floor:
        raise DatabaseTooNew(revision, head)


def _number(revision: str) -> int:
    """Revisions begin with their number, as in `0003_storage`."""
    return int(revision.partition("_")[0])


def _write_floor(connection: Connection) -> None:
    row = counters.c.name == _FLOOR_ROW
    if not connection.execute(counters.update().where(row).values(value=FLOOR)).rowcount:
        connection.execute(counters.insert().values(name=_FLOOR_ROW, value=FLOOR))
