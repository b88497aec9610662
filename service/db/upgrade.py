"""Migrates a database's tables, safely when several processes start at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, select, text

from service.db.engine import Database
from service.db.schema import FLOOR_ROW, counters
from service.errors import DatabaseTooNew

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent.parent / "migrations"
_LOCK = 0x72656C6178  # "relax"
FLOOR = 2
"""The revision of the oldest release that works on the tables of this one. A migration after which
that release's statements fail raises it: what is to be dropped is first no longer used, for one
release.
"""


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, with the connection to work on."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(_MIGRATIONS))
    settings.attributes["connection"] = connection
    return settings


def upgrade(db: Database) -> None:
    """Run the missing migrations in one transaction, which other processes wait for. A newer
    release's tables stay as they are, and are used where that release says that this one can.
    Raises DatabaseUnavailable, DatabaseTooNew.
    """
    with db.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        known, current = _revisions(), _current(connection)
        if current is not None and current not in known:
            _check_usable(connection, current, known[-1])
            return
        if current != known[-1]:
            # A third of the time in which a process starts, and most find the tables as they are.
            from alembic import command

            command.upgrade(config(connection), "head")
        _write_floor(connection)


def _revisions() -> list[str]:
    """Those of this release, the oldest first, as their files name them."""
    texts = (path.read_text() for path in sorted(_MIGRATIONS.glob("versions/[0-9]*.py")))
    return re.findall(r'^revision = "(.+)"', "\n".join(texts), re.MULTILINE)


def _current(connection: Connection) -> str | None:
    """The revision of the tables; None where there are none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return version


def _check_usable(connection: Connection, revision: str, head: str) -> None:
    floor = None
    if inspect(connection).has_table(counters.name):
        floor = connection.scalar(select(counters.c.value).where(counters.c.name == FLOOR_ROW))
    if floor is None or _number(head) < floor:
        raise DatabaseTooNew(revision, head)


def _number(revision: str) -> int:
    """Revisions begin with their number, as in `0003_storage`."""
    return int(revision.partition("_")[0])


def _write_floor(connection: Connection) -> None:
    row = counters.c.name == FLOOR_ROW
    if not connection.execute(counters.update().where(row).values(value=FLOOR)).rowcount:
        connection.execute(counters.insert().values(name=FLOOR_ROW, value=FLOOR))
