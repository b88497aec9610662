"""Waits for a store that is full or away, while the build keeps its claim and its work."""

import time
from collections.abc import Callable
from typing import TypeVar

from artifacts.errors import StorageFailed
from compiler.isolation.messages import Log
from service.workers.heartbeat import Pulse

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_POLL_S = 0.2

T = TypeVar("T")


class Patience:
    """What one build can still wait for the store, `seconds` in all."""

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
        """Whether the build may go on after the pause."""
        self._pulse.hear(Log(f"[waiting {seconds:g} s for the store: {error}]"))
        until = time.monotonic() + seconds
        while self._pulse.stop is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_S))
        return self._pulse.stop is None
