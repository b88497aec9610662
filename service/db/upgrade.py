"""Migrates a database's tables, safely when several processes start at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from service.db.engine import Database

_LOCK = 0x72656C6178  # "relax"


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, with the connection to work on."""
    found = Config()
    found.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    found.attributes["connection"] = connection
    return found


def upgrade(db: Database) -> None:
    """Run the missing migrations in one transaction, which other processes wait for; raises
    DatabaseUnavailable.
    """
    with db.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        command.upgrade(config(connection), "head")
