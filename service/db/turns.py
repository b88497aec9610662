"""Turns at what only one may do at a time, fair between those on whose behalf it is done."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TENANT: ContextVar[str] = ContextVar("tenant", default="")
"""The tenant whose request is served here; none in what the service does by itself."""


class NoTurn(Exception):
    """The turn did not come in time."""


class Turns:
    """A lock for threads. Those of one tenant get it in the order in which they came; tenants get
    it in turn, so that one with many threads holds up the others by one of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: dict[str, deque[threading.Event]] = {}

    @contextmanager
    def take(self, seconds: float) -> Iterator[None]:
        """Hold the lock, on behalf of TENANT; raises NoTurn where it does not come in so long."""
        tenant, turn = TENANT.get(), threading.Event()
        with self._lock:
            if self._is_taken:
                self._waiting.setdefault(tenant, deque()).append(turn)
            else:
                self._is_taken = True
                turn.set()
        if not turn.wait(seconds) and self._leave(tenant, turn):
            raise NoTurn
        try:
            yield
        finally:
            self._pass_on()

    def _leave(self, tenant: str, turn: threading.Event) -> bool:
        """Wait no longer; False where the turn has just come."""
        with self._lock:
            if turn.is_set():
                return False
            waiting = self._waiting[tenant]
            waiting.remove(turn)
            if not waiting:
                del self._waiting[tenant]
            return True

    def _pass_on(self) -> None:
        with self._lock:
            tenant = next(iter(self._waiting), None)
            if tenant is None:
                self._is_taken = False
                return
            waiting = self._waiting.pop(tenant)
            waiting.popleft().set()
            if waiting:
                self._waiting[tenant] = waiting  # behind the others
