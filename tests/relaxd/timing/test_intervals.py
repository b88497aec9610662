"""Medians of paired rounds: intervals against tables and simulation."""

import numpy as np
import pytest

from relaxd.timing.intervals import (
    FEWEST,
    Interval,
    geometric_mean,
    median_interval,
    pair_ratios,
)


def test_fewest_is_the_least_number_of_rounds_with_an_interval():
    assert median_interval(range(FEWEST)) == Interval(2.5, 0, 5)
    with pytest.raises(ValueError, match="5 rounds give no interval; 6 or more do"):
        median_interval([1.0] * (FEWEST - 1))


def test_an_interval_goes_from_the_second_to_the_last_but_one_of_eleven():
    shuffled = [7.0, 1.0, 11.0, 3.0, 5.0, 2.0, 9.0, 4.0, 10.0, 8.0, 6.0]
    assert median_interval(shuffled) == Interval(6.0, 2.0, 10.0)


def test_one_outlier_on_each_side_changes_nothing():
    rounds = [0.9] * 9
    assert median_interval([*rounds, 50.0, 0.001]) == Interval(0.9, 0.9, 0.9)


def test_the_median_lies_inside_as_often_as_promised():
    samples = np.random.default_rng(3).exponential(size=[2000, 11])
    intervals = [median_interval(list(row)) for row in samples]
    inside = np.mean([one.low <= np.log(2) <= one.high for one in intervals])
    assert inside == pytest.approx(1 - 24 / 2048, abs=0.01)


def test_pairing_takes_out_what_slows_both_sides_of_a_round():
    slow = [1.0, 2.0, 1.0, 5.0, 1.0, 1.5]
    intervals = median_interval(pair_ratios([0.8 * one for one in slow], slow))
    assert (intervals.low, intervals.middle, intervals.high) == pytest.approx((0.8, 0.8, 0.8))
    with pytest.raises(ValueError, match="zip"):
        pair_ratios([1.0], [1.0, 2.0])


def test_the_geometric_mean_is_of_the_rows_medians():
    rows = [[0.5] * 5 + [9.0], [2.0] * 6, [1.0] * 6]
    mean = geometric_mean(rows)
    assert mean.middle == pytest.approx(1.0)
    assert mean.low <= mean.middle <= mean.high
    assert geometric_mean([]) is None


def test_its_interval_is_the_same_in_every_run_and_narrows_with_more_rows():
    generator = np.random.default_rng(5)
    rows = [list(0.8 * generator.lognormal(sigma=0.1, size=11)) for _ in range(40)]
    few, many = geometric_mean(rows[:4]), geometric_mean(rows)
    assert geometric_mean(rows) == many
    assert many.low < 0.8 < many.high
    assert many.high - many.low < (few.high - few.low) / 2


def test_an_interval_as_text():
    assert str(Interval(0.812, 0.8, 0.8349)) == "0.81 (0.80-0.83)"
