"""Migrates a database's tables, safely when several processes start at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from service.db.engine import Database
from service.errors import DatabaseTooNew

_LOCK = 0x72656C6178  # "relax"


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, with the connection to work on."""
    found = Config()
    found.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    found.attributes["connection"] = connection
    return found


def upgrade(db: Database) -> None:
    """Run the missing migrations in one transaction, which other processes wait for; raises
    DatabaseUnavailable, DatabaseTooNew.
    """
    with db.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        _check_known(connection)
        command.upgrade(config(connection), "head")


def _check_known(connection: Connection) -> None:
    scripts = ScriptDirectory.from_config(config())
    known = {script.revision for script in scripts.walk_revisions()}
    for revision in MigrationContext.configure(connection).get_current_heads():
        if revision not in known:
            raise DatabaseTooNew(revision, str(scripts.get_current_head()))
