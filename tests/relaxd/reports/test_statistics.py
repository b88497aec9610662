import random

import pytest

from relaxd.reports.statistics import fewest, median_interval


def test_ten_values_give_the_interval_of_the_tables() -> None:
    """The second and the ninth of ten: 97.9 %, as in every table of order statistics."""
    assert median_interval(range(1, 11), 0.95) == (5.5, 2, 9)


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (25, 8), (100, 40)]
)
def test_ranks_are_those_of_tables_of_the_sign_test(count: int, rank: int) -> None:
    assert median_interval(range(1, count + 1), 0.95)[1:] == (rank, count + 1 - rank)


def test_an_outlier_moves_nothing() -> None:
    assert median_interval([*range(20), 10**9], 0.99)[2] < 20


def test_it_covers_the_median_as_often_as_it_says() -> None:
    draw = random.Random(0)
    missed = 0
    for _ in range(2000):
        _, low, high = median_interval([draw.expovariate(1) for _ in range(25)], 0.95)
        missed += not low <= 0.6931 <= high
    assert missed < 0.05 * 2000


@pytest.mark.parametrize(("confidence", "count"), [(0.9, 5), (0.95, 6), (0.999, 11)])
def test_as_few_values_as_the_confidence_takes(confidence: float, count: int) -> None:
    assert fewest(confidence) == count
