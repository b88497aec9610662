"""Keeps a run over ever larger inputs within its time: foresees what the next would take from what the last ones took."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np


class Pace:
    """A budget of wall-clock seconds from now on; time is taken to grow as the bytes of the inputs do, at the best rate seen."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.perf_counter() + seconds
        self._seconds_per_byte: float | None = None

    @property
    def left(self) -> float:
        """Seconds left of the budget, 0 at least."""
        return max(self._deadline - time.perf_counter(), 0.0)

    def objection(self, inputs: Mapping[str, np.ndarray[Any, Any]], runs: int = 1) -> str | None:
        """Why so many runs on the inputs should not be started; None when they fit, as far as one can tell."""
        expected = (self._seconds_per_byte or 0.0) * _bytes_of(inputs) * runs
        if 0 < self.left >= expected:
            return None
        return f"it would take about {expected:.1f} s, of the time budget {self.left:.1f} s are left"

    def took(self, inputs: Mapping[str, np.ndarray[Any, Any]], seconds: float) -> None:
        """One run on the inputs took so long."""
        rate = seconds / _bytes_of(inputs)
        self._seconds_per_byte = min(rate, self._seconds_per_byte or rate)


def _bytes_of(inputs: Mapping[str, np.ndarray[Any, Any]]) -> int:
    return sum(array.nbytes for array in inputs.values()) or 1
