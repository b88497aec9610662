"""Connections to the job database: SQLite in WAL mode or PostgreSQL, with equal guarantees."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import URL, Connection, Engine, Executable, create_engine, event, make_url, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, TimeoutError

from service.db.failures import BUSY, classify, is_read_only
from service.db.turns import NoTurn, Turns
from service.errors import DatabaseUnavailable, InvalidSettings

BUSY_S = 10.0
CONNECT_S = 10
POLL_S = 0.002
WRITE_S = 5
"""How long a database that works takes for a small write at the most."""
IDLE_S = 1.0
"""A connection that nobody used for as long is tried before it is used."""


class Database:
    """Transactions on one database; safe to use from several threads and processes."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet; raises InvalidSettings for a URL of another kind."""
        self.url = _parse(url)
        self._embedded = self.url.get_backend_name() == "sqlite"
        self._turns = Turns()
        self._engine = _sqlite(url, BUSY_S) if self._embedded else _server(url)
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
        with self._turn(BUSY_S), _translated(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def _turn(self, seconds: float) -> Iterator[None]:
        """Let the threads of this process write to SQLite in turn: it would have each that finds
        its lock taken sleep for up to 0.1 s and try again, for seconds where many do.
        """
        if not self._embedded:
            yield
            return
        try:
            with self._turns.take(seconds):
                yield
        except NoTurn:
            message = f"no write could begin within {seconds:g} s"
            raise DatabaseUnavailable(message, BUSY) from None

    def write_at_once(self) -> AbstractContextManager[Connection]:
        """Do what `write` does, for one statement: on a server it needs no transaction."""
        return self.write() if self._embedded else self.read()

    def check_writable(self, write: Executable) -> None:
        """Raise DatabaseUnavailable unless the database does the write, and within WRITE_S."""
        with self._turn(WRITE_S), _translated(), self._prober.begin() as connection:
            if not self._embedded:
                connection.execute(text(f"SET LOCAL statement_timeout = '{WRITE_S}s'"))
            connection.execute(write)

    @cached_property
    def _prober(self) -> Engine:
        # SQLite waits for a lock as long as its connection was made to.
        if not self._embedded:
            return self._writer
        prober = _sqlite(self.url, WRITE_S, pool_size=1)
        return prober.execution_options(writes=True)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()
        if "_prober" in vars(self):
            self._prober.dispose()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _unknown_kind("it is not a URL") from None
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql", "postgres"):
        raise _unknown_kind(f"relaxd has no support for {kind}:// databases")
    return parsed


def _unknown_kind(why: str) -> InvalidSettings:
    return InvalidSettings(
        f"RELAXD_DATABASE_URL: {why}",
        hint="use postgresql://USER:PASSWORD@HOST/NAME, with HOST1,HOST2 for a failover, or none",
    )


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

    @event.listens_for(engine, "handle_error")
    def leave(context: ExceptionContext) -> None:
        # The next connection may lead to the server that was made the primary.
        if is_read_only(context.original_exception):
            context.is_disconnect = True

    return engine


def _sqlite(url: str | URL, busy_s: float, pool_size: int = 10) -> Engine:
    engine = create_engine(
        url, connect_args={"timeout": busy_s}, pool_size=pool_size, max_overflow=30
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would begin late and let two writers deadlock.
        connection.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("writes", False):
            _begin_write(connection, busy_s)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _begin_write(connection: Connection, busy_s: float) -> None:
    """Take SQLite's lock as soon as other processes let go of it. SQLite itself would look for it
    ten times a second after a while, and rarely find it free where another process writes a lot.
    """
    driver: Any = connection.connection.driver_connection
    end = time.monotonic() + busy_s
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while time.monotonic() < end:
            try:
                driver.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                # The lowest byte is the code, the others say more of it.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    break
                time.sleep(POLL_S)
            else:
                return
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {round(1000 * busy_s)}")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if (known := classify(error)) is None:
            raise
        raise known from error
    except TimeoutError as error:
        raise DatabaseUnavailable(str(error)) from error
