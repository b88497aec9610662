"""Keeps a series of runs over ever larger inputs within its time, by predicting each run from those
before it.
"""

import time
from collections.abc import Callable, Collection

_TELLING = 0.1
"""By what part of its effort a run is larger that says how time grows with it. Below it, noise in
the times would be taken for growth.
"""


class TimeBudget:
    """A budget of seconds from now on. Predicts the next run's time by linear extrapolation in its
    effort, from the first run to the last.

    clock: gives seconds, wall-clock time by default; unit: what an objection calls them.
    """

    def __init__(
        self, seconds: float, clock: Callable[[], float] = time.perf_counter, unit: str = "s"
    ) -> None:
        self._clock, self._unit = clock, unit
        self._deadline = clock() + seconds
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    @property
    def left(self) -> float:
        """Seconds left of the budget, 0 at least."""
        return max(self._deadline - self._clock(), 0.0)

    def objection(self, effort: int, runs: int = 1) -> str | None:
        """Why so many runs of this effort should not be started; None when they fit, as far as the
        runs so far show.

        effort: what time is about proportional to, in any unit.
        """
        expected = self._expected(effort) * runs
        if 0 < self.left >= expected:
            return None
        about = f"it would take about {expected:.1f} {self._unit}"
        return f"{about}, of the time budget {self.left:.1f} s are left"

    def took(self, effort: int, seconds: float) -> None:
        """One run of this effort took so long."""
        self._last = (effort, seconds)
        self._first = self._first or self._last

    def forecast(self, efforts: Collection[int]) -> float | None:
        """Seconds that runs of these efforts will take together; None where the runs so far do not
        show how time grows up to them.
        """
        if not efforts:
            return 0.0
        if not self._first or not self._last:
            return None
        largest = max(first for first, _ in (self._first, self._last)) * (1 + _TELLING)
        if self._rate() is None and max(efforts) > largest:
            return None
        return sum(self._expected(effort) for effort in efforts)

    def _expected(self, effort: int) -> float:
        if not self._first or not self._last:
            return 0.0
        return self._last[1] + (self._rate() or 0.0) * max(effort - self._last[0], 0)

    def _rate(self) -> float | None:
        """Seconds for each unit of effort; None where the runs so far are too much alike."""
        assert self._first is not None
        assert self._last is not None
        grown, longer = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return max(longer, 0.0) / grown if grown > _TELLING * self._first[0] else None
