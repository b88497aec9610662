"""Failures of the job database by what they mean, from PostgreSQL's SQLSTATE or SQLite's code: the
one place that decides what may be tried again.
"""

import sqlite3
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from service.errors import DatabaseDamaged, DatabaseUnavailable, ServiceError

_READ_ONLY = "it takes no writes: point RELAXD_DATABASE_URL at the primary server"
_FULL = "its disk is full: make room there; `relaxd gc` removes what is no longer needed"
_CONNECTIONS = "raise max_connections of the server, or run fewer processes"
_BUSY = "try again: other transactions conflicted with this one"
_RESTARTS = "try again; the server is stopping or starting"

BUSY = "another process holds its lock: see which, or try again"
READ_ONLY = "25006"
_BY_STATE: tuple[tuple[str, str], ...] = (
    (READ_ONLY, _READ_ONLY),
    ("53100", _FULL),
    ("53300", _CONNECTIONS),
    ("53", "the server lacks memory or another resource"),
    ("40", _BUSY),
    ("55P03", _BUSY),
    ("57014", _BUSY),
    ("57", _RESTARTS),
    ("08", _RESTARTS),
    ("25", "try again on a new connection"),
    ("58", "see the server's log: its disk or system fails"),
    ("XX000", "see the server's log: it failed inside"),
)
"""Hints by the beginning of a SQLSTATE that may pass; the first that fits counts."""
_BY_NAME: tuple[tuple[str, str], ...] = (
    ("SQLITE_FULL", _FULL),
    ("SQLITE_READONLY", "it cannot be written: check the permissions and the disk"),
    ("SQLITE_BUSY", BUSY),
    ("SQLITE_LOCKED", _BUSY),
    ("SQLITE_IOERR", "its disk fails or is full"),
)
"""The same by the beginning of the name of SQLite's code."""
_DAMAGED_STATES = ("XX001", "XX002")
_DAMAGED_NAMES = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


@dataclass(frozen=True)
class _Cause:
    """A driver's error by its own names: `state` of PostgreSQL, `name` of SQLite."""

    state: str
    name: str

    def begins(self, states: tuple[str, ...], names: tuple[str, ...]) -> bool:
        """True if one of these begins the code."""
        return self.state.startswith(states) or self.name.startswith(names)

    def hint(self) -> str | None:
        """Say what to change; None for a code that tells of nothing that may pass."""
        of_state = (hint for begin, hint in _BY_STATE if self.state.startswith(begin))
        of_name = (hint for begin, hint in _BY_NAME if self.name.startswith(begin))
        return next(of_state, None) or next(of_name, None)


def classify(error: DBAPIError) -> ServiceError | None:
    """The service's error for a driver's; None for a mistake in a statement, which is ours."""
    cause = _cause_of(error.orig)
    if cause.begins(_DAMAGED_STATES, _DAMAGED_NAMES):
        return DatabaseDamaged(str(error.orig))
    hint = cause.hint()
    # A server that goes away in the middle of a query makes errors of other kinds, too.
    passes = isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated
    return DatabaseUnavailable(str(error.orig), hint) if hint or passes else None


def is_read_only(error: BaseException | None) -> bool:
    """True if a server refused to write: it is a replica, or was made read-only, as after a
    failover; its connections are of no more use.
    """
    return getattr(error, "sqlstate", None) == READ_ONLY


def _cause_of(error: BaseException | None) -> _Cause:
    name = error.sqlite_errorname if isinstance(error, sqlite3.Error) else ""
    return _Cause(getattr(error, "sqlstate", None) or "", name)
