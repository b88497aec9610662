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
        self._impatient: set[int] = set()
        """Threads that fork although some thread is inside."""

    def __enter__(self) -> None:
        """Enter, once no fork is under way; raises ExecutionError in a child whose fork cut a call
        short.
        """
        own, inside = threading.get_ident(), self._inside
        # Each thread has an entry of its own. One that enters writes it and then looks for a fork;
        # a fork announces itself and then looks for entries: one of the two sees the other.
        inside[own] = inside.get(own, 0) + 1
        if self._forking or self.cut_short:
            self._wait(own)

    def _wait(self, own: int) -> None:
        """Stay outside until no fork is under way, but for a thread that was inside already."""
        with self._lock:
            self._leave(own)
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
        self._leave(threading.get_ident())

    def _leave(self, own: int) -> None:
        inside = self._inside
        if inside[own] == 1:
            del inside[own]
        else:
            inside[own] -= 1
        if self._forking:
            with self._lock:
                self._changed.notify_all()

    def _before(self) -> None:
        own, until = threading.get_ident(), time.monotonic() + PATIENCE_S
        with self._changed:
            self._forking += 1
            self._impatient.discard(own)
            while self._inside:
                late = own in self._inside or not self._changed.wait(until - time.monotonic())
                if late:
                    self._impatient.add(own)
                    return

    def _after(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()

    def _in_child(self) -> None:
        # Not by the entries: a thread that enters writes its own before it sees the fork and waits.
        self.cut_short = self.cut_short or threading.get_ident() in self._impatient
        self._renew()


GATE = Gate()
