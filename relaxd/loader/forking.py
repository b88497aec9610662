"""Forks come between calls of models, never within one.

A child has the forking thread alone. What another thread was at in that moment stays as it was for
good: locks of the runtime that nobody releases, frames of a virtual machine that nobody leaves. So
a fork waits until no thread computes or loads, and calls that begin meanwhile wait for the fork. A
fork that cannot wait, because its own thread computes or a call takes longer than PATIENCE_S, goes
on, and in its child every call raises ExecutionError at once.
"""

import os
import threading
import time
from types import TracebackType

from relaxd.errors import ExecutionError

PATIENCE_S = 60.0


class Gate:
    """A context for whatever computes or loads; see the module."""

    def __init__(self) -> None:
        self._renew()
        self.cut_short = False
        os.register_at_fork(
            before=self._before, after_in_parent=self._after, after_in_child=self._in_child
        )

    def _renew(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal may fork at any time
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}
        self._forking = 0

    def __enter__(self) -> None:
        """Enter, once no fork is under way; raises ExecutionError in a child whose fork cut a call
        short.
        """
        own = threading.get_ident()
        with self._lock:
            if self.cut_short:
                raise ExecutionError(
                    "this process was forked while a model ran, whose state it cannot use",
                    hint="fork between calls, or start processes by `spawn`",
                )
            while self._forking and own not in self._inside:
                self._changed.wait()
            self._inside[own] = self._inside.get(own, 0) + 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        own = threading.get_ident()
        with self._lock:
            self._inside[own] -= 1
            if not self._inside[own]:
                del self._inside[own]
            if self._forking:
                self._changed.notify_all()

    def _before(self) -> None:
        own, until = threading.get_ident(), time.monotonic() + PATIENCE_S
        with self._changed:
            self._forking += 1
            while self._inside and own not in self._inside:
                if not self._changed.wait(until - time.monotonic()):
                    return

    def _after(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()

    def _in_child(self) -> None:
        self.cut_short = self.cut_short or bool(self._inside)
        self._renew()


GATE = Gate()
