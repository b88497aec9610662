"""The bound of a case, and the figures of a family."""

import pytest

from benchmarks.kernels.roofline import Spread, by_family, rate_row
from compiler.targets.caches import Caches

CACHES = Caches(l1=1 << 10, l2=1 << 14, l3=1 << 20)


def row(group="matmul", executed=100, touched=1 << 24, rate=20.0, **more):
    """100 operations and bytes in 10 ns are 10 GFLOP/s and 10 GB/s, beside a peak of 40."""
    base = {"group": group, "executed": executed, "bytes": 100, "touched": touched}
    peak = {"peak_gflops": 40.0, "share_of_peak": 0.26}
    reads = {"bandwidth_gb_s": rate, "share_of_bandwidth": 9.0 / rate}
    return {**base, "seconds": 1e-8, **peak, **reads, **more}


def test_few_operations_a_byte_are_bound_by_what_holds_the_bytes():
    case = rate_row(row(), CACHES)
    assert (case.bound, case.intensity) == ("memory", 1.0)
    assert (case.gflops, case.gb_s) == pytest.approx((10.0, 10.0))
    # As measured in turns, which is not the ratio of two medians.
    assert case.share == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("touched", "bound"), [(1 << 9, "L1"), (1 << 12, "L2"), (1 << 17, "L3"), (1 << 21, "memory")]
)
def test_what_fits_into_a_cache_is_bound_by_that_cache(touched, bound):
    assert rate_row(row(touched=touched), CACHES).bound == bound


def test_many_operations_a_byte_are_bound_by_the_peak_measured_in_turns():
    case = rate_row(row(executed=201), CACHES)
    assert (case.bound, case.share) == ("arithmetic", 0.26)
    # Where both ceilings meet the peak decides.
    assert rate_row(row(executed=200), CACHES).bound == "arithmetic"
    assert rate_row(row(executed=199), CACHES).bound == "memory"


def test_a_cache_may_leave_to_arithmetic_what_memory_bounds():
    assert rate_row(row(rate=20.0), CACHES).bound == "memory"
    assert rate_row(row(rate=100.0, touched=1 << 12), CACHES).bound == "arithmetic"


def test_a_copy_computes_nothing_and_is_bound_by_what_holds_it():
    case = rate_row(row("copy", executed=0), CACHES)
    assert (case.gflops, case.intensity, case.bound) == (0.0, 0.0, "memory")
    assert case.share == pytest.approx(0.45)


def test_families_keep_their_order_and_split_by_what_bounds_their_cases():
    rows = [row("pooling"), row(), row(executed=900), row(executed=800, share_of_peak=0.5)]
    families = by_family([rate_row(one, CACHES) for one in rows])
    assert [(one.group, one.bound, len(one.cases)) for one in families] == [
        ("pooling", "memory", 1), ("matmul", "arithmetic", 2), ("matmul", "memory", 1),
    ]  # fmt: skip
    assert families[1].share_of_peak == Spread(0.38, 0.26, 0.5)
    assert families[1].spread("intensity") == Spread(8.5, 8.0, 9.0)
