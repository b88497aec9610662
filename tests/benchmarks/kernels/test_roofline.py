"""What bounds a case, and the figures of a family."""

import pytest

from benchmarks.kernels.ceilings import Bandwidth
from benchmarks.kernels.roofline import Spread, by_family, rated
from compiler.targets.caches import Caches

CACHES = Caches(l1=1 << 10, l2=1 << 14, l3=1 << 20)
BANDWIDTH = Bandwidth((1 << 9, 1 << 12, 1 << 17, 1 << 24), (200.0, 100.0, 50.0, 20.0))


def row(group="matmul", executed=100, moved=100, touched=1 << 24, seconds=1e-8, **more):
    """100 operations and bytes in 10 ns are 10 GFLOP/s and 10 GB/s, beside a peak of 40."""
    found = {"group": group, "executed": executed, "bytes": moved, "touched": touched}
    return {**found, "seconds": seconds, "peak_gflops": 40.0, "share_of_peak": 0.26, **more}


def test_few_operations_a_byte_are_bound_by_what_holds_the_bytes():
    found = rated(row(), BANDWIDTH, CACHES)
    assert (found.bound, found.bandwidth, found.intensity) == ("memory", 20.0, 1.0)
    assert (found.gflops, found.gb_s) == pytest.approx((10.0, 10.0))
    assert found.share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("touched", "bound", "bandwidth"),
    [(1 << 9, "L1", 200.0), (1 << 12, "L2", 100.0), (1 << 17, "L3", 50.0)],
)
def test_what_fits_into_a_cache_is_not_bound_by_memory(touched, bound, bandwidth):
    found = rated(row(executed=10, touched=touched), BANDWIDTH, CACHES)
    assert (found.bound, found.bandwidth) == (bound, bandwidth)
    assert found.share == pytest.approx(10.0 / bandwidth)


def test_many_operations_a_byte_are_bound_by_the_peak_measured_in_turns():
    found = rated(row(executed=201), BANDWIDTH, CACHES)
    assert (found.bound, found.share) == ("arithmetic", 0.26)
    # Where both ceilings meet the peak decides.
    assert rated(row(executed=200), BANDWIDTH, CACHES).bound == "arithmetic"
    assert rated(row(executed=199), BANDWIDTH, CACHES).bound == "memory"


def test_a_cache_may_leave_to_arithmetic_what_memory_bounds():
    assert rated(row(touched=1 << 24), BANDWIDTH, CACHES).bound == "memory"
    assert rated(row(touched=1 << 12), BANDWIDTH, CACHES).bound == "arithmetic"


def test_a_copy_computes_nothing_and_is_bound_by_what_holds_it():
    found = rated(row("copy", executed=0), BANDWIDTH, CACHES)
    assert (found.gflops, found.intensity, found.bound) == (0.0, 0.0, "memory")
    assert found.share == pytest.approx(0.5)


def test_families_keep_their_order_and_split_by_what_bounds_their_cases():
    rows = [row("pooling"), row(), row(executed=900), row(executed=800, share_of_peak=0.5)]
    found = by_family([rated(one, BANDWIDTH, CACHES) for one in rows])
    assert [(one.group, one.bound, len(one.cases)) for one in found] == [
        ("pooling", "memory", 1), ("matmul", "arithmetic", 2), ("matmul", "memory", 1),
    ]  # fmt: skip
    assert found[1].share_of_peak == Spread(0.38, 0.26, 0.5)
    assert found[1].spread("intensity") == Spread(8.5, 8.0, 9.0)
