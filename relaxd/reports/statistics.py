"""An interval for the median that holds whatever the distribution: noise of busy machines has long
tails.
"""

from collections.abc import Sequence
from math import comb
from statistics import median


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """The median and two of the values between which the median of the distribution lies, with at
    least that confidence; the extremes where there are too few values for it.

    The number of values below the median is binomial with one half: H. A. David and H. N. Nagaraja,
    Order Statistics, 3rd edition (2003), section 7.1.
    """
    ordered = sorted(values)
    count, outside, rank = len(ordered), 0.0, 0
    while rank < count // 2:
        outside += comb(count, rank) / 2**count
        if 2 * outside > 1 - confidence:
            break
        rank += 1
    lowest = max(rank - 1, 0)
    return median(ordered), ordered[lowest], ordered[count - 1 - lowest]


def fewest(confidence: float) -> int:
    """How many values it takes for an interval of that confidence."""
    count = 2
    while 2 / 2**count > 1 - confidence:
        count += 1
    return count
