"""Ratios of paired rounds with their intervals.

In every round each engine runs once, so that what slows a round slows both sides of its ratio.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from relaxd.reports import statistics as order_statistics

CONFIDENCE = 0.95
FEWEST = order_statistics.fewest(CONFIDENCE)
"""Rounds below which no two of them enclose the median with that confidence."""
REPLICATES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate, and the ends between which the true value lies with CONFIDENCE."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        """`0.81 (0.80-0.83)`."""
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"


def median_interval(values: Sequence[float]) -> Interval:
    """The median and its order statistics' interval; raises ValueError for fewer than FEWEST."""
    if len(values) < FEWEST:
        raise ValueError(f"{len(values)} rounds give no interval; {FEWEST} or more do")
    return Interval(*order_statistics.median_interval(values, CONFIDENCE))


def pair_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Our time over theirs in each round; raises ValueError for unequal numbers of rounds."""
    return [mine / peer for mine, peer in zip(ours, theirs, strict=True)]


def geometric_mean(rows: Sequence[Sequence[float]], seed: int = 0) -> Interval | None:
    """The geometric mean of the rows' medians, None without rows. A row is its rounds' ratios.

    The interval is the percentile bootstrap's over the rounds of each row: B. Efron and
    R. J. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. It says how much another
    run on this machine would differ, not what other models would give.
    """
    if not rows:
        return None
    import numpy as np

    generator = np.random.default_rng(seed)
    logs = np.zeros(REPLICATES)
    for row in rows:
        values = np.log(np.asarray(row))
        samples = generator.integers(0, len(values), [REPLICATES, len(values)])
        logs += np.median(values[samples], axis=1)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.exp(np.percentile(logs / len(rows), [tail, 100 - tail]))
    middle = math.exp(statistics.fmean(math.log(statistics.median(row)) for row in rows))
    return Interval(middle, float(low), float(high))
