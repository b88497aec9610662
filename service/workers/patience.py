"""Waits for a store that is full or away, and for a database that is away, while the build keeps
its claim and its work.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from artifacts.errors import StorageFailed
from compiler.isolation.messages import Log
from service.errors import DatabaseUnavailable
from service.workers.heartbeat import Pulse, Stop

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_POLL_S = 0.2
_FIRST_DATABASE_PAUSE_S, _LONGEST_DATABASE_PAUSE_S = 0.1, 2.0

T = TypeVar("T")


class Patience:
    """The time that one build can still wait for the store, `seconds` in all."""

    def __init__(self, pulse: Pulse, seconds: float) -> None:
        self._pulse = pulse
        self._left = seconds

    def with_store(self, use: Callable[[], T]) -> T:
        """The result of `use`, which may be called again, after a pause that doubles. Raises
        StorageFailed once the time is up, or the build has to stop.
        """
        pause = FIRST_PAUSE_S
        while True:
            try:
                return use()
            except StorageFailed as error:
                pause = min(pause, self._left)
                if pause <= 0 or not self._wait(pause, error):
                    raise
                self._left -= pause
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _wait(self, seconds: float, error: StorageFailed) -> bool:
        """True if the build may go on after the pause."""
        self._pulse.hear(Log(f"[waiting {seconds:g} s for the store: {error}]"))
        until = time.monotonic() + seconds
        while self._pulse.stop is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_S))
        return self._pulse.stop is None


def with_database(pulse: Pulse, write: Callable[[], None]) -> None:
    """Have the database take what `write` writes, which may be called again. Raises
    DatabaseUnavailable once the lease is over or the worker shuts down.
    """
    pause = _FIRST_DATABASE_PAUSE_S
    while True:
        try:
            return write()
        except DatabaseUnavailable:
            if pulse.stop in (Stop.LOST, Stop.SHUTDOWN):
                raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_DATABASE_PAUSE_S)
