"""Bandwidth by size, caches by size, and how reads are timed, with a clock of its own."""

import pytest

from benchmarks.kernels import ceilings
from benchmarks.kernels.ceilings import Bandwidth, level_of, measure_bandwidth, sizes_by_level
from compiler.targets.caches import Caches

CACHES = Caches(l1=32 << 10, l2=1 << 20, l3=32 << 20)


def test_bandwidth_between_two_sizes_goes_by_their_logarithms():
    bandwidth = Bandwidth((1 << 10, 1 << 12), (100.0, 25.0))
    assert bandwidth.rate_at(1 << 11) == pytest.approx(50.0)
    assert [bandwidth.rate_at(size) for size in (1, 1 << 10, 1 << 12, 1 << 30)] == [
        100,
        100,
        25,
        25,
    ]


def test_bandwidth_survives_the_file():
    bandwidth = Bandwidth((768, 1536), (220.5, 117.0))
    assert Bandwidth.from_json(bandwidth.to_json()) == bandwidth


def test_the_nearest_cache_that_holds_the_bytes_bounds_them():
    sizes = (1, 32 << 10, (32 << 10) + 1, 1 << 20, 2 << 20, 33 << 20)
    assert [level_of(size, CACHES) for size in sizes] == ["L1", "L1", "L2", "L2", "L3", "memory"]
    assert level_of(1 << 20, Caches(l1=32 << 10, l2=1 << 19, l3=0)) == "memory"


def test_a_cache_is_shown_at_a_size_that_the_one_before_it_does_not_hold():
    bandwidth = sizes_by_level(CACHES)
    assert [level_of(size, CACHES) for size in bandwidth.values()] == list(bandwidth)
    assert bandwidth["memory"] == 4 * CACHES.l3
    assert list(sizes_by_level(Caches(l1=32 << 10, l2=1 << 19, l3=0))) == ["L1", "L2", "memory"]


def test_the_better_of_two_measurements_counts_at_each_size():
    bandwidth = Bandwidth((1, 2), (3.0, 1.0)).best_of(Bandwidth((1, 2), (2.0, 4.0)))
    assert bandwidth == Bandwidth((1, 2), (3.0, 4.0))


def test_the_best_try_of_the_best_loop_counts_at_every_power_of_two(monkeypatch):
    now, calls = [0.0], iter(range(10**6))

    def rate_of(rate):
        def read(size, times):
            # Other work stretches every fifth call.
            now[0] += size * times / rate * (1 + (next(calls) % 5 == 0))
            return size

        return read

    monkeypatch.setattr(ceilings.time, "thread_time", lambda: now[0])
    bandwidth = measure_bandwidth(
        [rate_of(4e9), rate_of(10e9)], Caches(l1=4 << 10, l2=8 << 10, l3=0)
    )
    assert bandwidth.bytes == (4 << 10, 8 << 10, 16 << 10, 32 << 10)
    assert bandwidth.gb_s == pytest.approx((10.0,) * 4)
