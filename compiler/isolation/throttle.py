"""Passes on counts of quick steps as often as people can read them."""

import time
from collections.abc import Callable

_SECONDS = 1.0


class Throttle:
    """Calls `report` with the counts that it is called with, once a second at most, and with the
    last of them in any case.
    """

    def __init__(
        self, report: Callable[[int, int], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._clock = report, clock
        self._next = clock() + _SECONDS

    def __call__(self, done: int, total: int) -> None:
        """Take how many steps are done, of how many."""
        now = self._clock()
        if now >= self._next or done == total:
            self._next = now + _SECONDS
            self._report(done, total)
