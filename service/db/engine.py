"""Connections to the job database: SQLite in WAL mode or PostgreSQL, with equal guarantees."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, select, text
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
    TimeoutError,
)

from service.errors import DatabaseUnavailable

BUSY_S = 30
CONNECT_S = 10
IDLE_S = 1.0
"""A connection that nobody used for as long is tried before it is used."""


class Database:
    """Transactions on one database; safe to use from several threads and processes."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self._embedded = self.url.get_backend_name() == "sqlite"
        self._engine = _sqlite(url) if self._embedded else _server(url)
        transactions = {} if self._embedded else {"isolation_level": "READ COMMITTED"}
        self._writer = self._engine.execution_options(writes=True, **transactions)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """For statements that only read, each of which sees a consistent state; raises
        DatabaseUnavailable.
        """
        with _translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Commits when the block ends, rolls back when it raises; SQLite lets one in at a time;
        raises DatabaseUnavailable.
        """
        with _translated(), self._writer.begin() as connection:
            yield connection

    def write_at_once(self) -> AbstractContextManager[Connection]:
        """Do what `write` does, for one statement: on a server it needs no transaction."""
        return self.write() if self._embedded else self.read()

    def ping(self) -> None:
        """Raise DatabaseUnavailable unless the database answers."""
        with self.read() as connection:
            connection.execute(select(text("1")))

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _server(url: str) -> Engine:
    name = (
        make_url(url).set(drivername="postgresql+psycopg")
        if url.startswith(("postgres:", "postgresql:"))
        else url
    )
    # A server shows each statement what was committed before it, in a transaction too: one around
    # statements that only read would cost two more exchanges with the server.
    engine = create_engine(
        name,
        isolation_level="AUTOCOMMIT",
        pool_size=10,
        max_overflow=30,
        connect_args={"connect_timeout": CONNECT_S},
    )

    @event.listens_for(engine, "checkin")
    def note(_connection: Any, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("used_at", time.monotonic()) > IDLE_S:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error  # the pool makes a new one

    return engine


def _sqlite(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_S}, pool_size=10, max_overflow=30)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would begin late and let two writers deadlock.
        connection.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        # A server that goes away in the middle of a query makes errors of other kinds, too.
        if isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated:
            raise DatabaseUnavailable(str(error.orig)) from error
        raise
    except TimeoutError as error:
        raise DatabaseUnavailable(str(error)) from error
