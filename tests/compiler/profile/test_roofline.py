"""A kernel's time beside what the machine could do."""

import pytest

from compiler import targets
from compiler.profile.report import complete
from compiler.profile.roofline import rate_row
from compiler.verify.inputs.effort import work_at

GPU = targets.resolve("opencl")
MACHINE = {"peak_gflops": 100.0, "peak_gb_s": 10.0}


def note(flops: str, moved: str, calls: int = 1, computes: str = "float32") -> dict[str, object]:
    return {"name": "k", "calls": calls, "flops": flops, "bytes": moved, "computes": computes}


def row(ms: float, calls: int = 1) -> dict[str, object]:
    return {"name": "k", "calls": calls, "ms": ms, "share": 1.0}


@pytest.mark.parametrize(
    ("flops", "moved", "bound", "percent"),
    [
        # 1 ms is 100 M operations, or 10 MB from memory.
        ("50000000", "1000000", "compute", 50.0),
        ("1000000", "8000000", "memory", 80.0),
        ("20000000", "40000000", "cache", 20.0),
        ("0", "5000000", "memory", 50.0),
    ],
)
def test_the_nearer_roof_bounds(flops: str, moved: str, bound: str, percent: float) -> None:
    rated = rate_row(row(1.0), note(flops, moved), {}, MACHINE)
    assert (rated["bound"], rated["percent_of_peak"]) == (bound, percent)
    assert (rated["flops"], rated["bytes"]) == (int(flops), int(moved))
    assert rated["gflops"] == pytest.approx(int(flops) / 1e6)


def test_counts_are_those_of_the_point() -> None:
    rated = rate_row(row(2.0), note("8*n*n", "4*n"), {"n": 1000}, MACHINE)
    assert (rated["flops"], rated["bytes"], rated["gflops"]) == (8_000_000, 4000, 4.0)


def test_integers_have_no_part_of_a_peak_of_floats() -> None:
    rated = rate_row(row(1.0), note("50000000", "1000", computes="int32"), {}, MACHINE)
    assert rated["bound"] == "compute"
    assert "percent_of_peak" not in rated
    for flops, family in (("50000000", "int8"), ("145000000", "attention")):
        noted = {**note(flops, "1000"), "family": family}
        assert "percent_of_peak" not in rate_row(row(1.0), noted, {}, MACHINE)
    moved = rate_row(row(1.0), note("10", "8000000", computes="int64"), {}, MACHINE)
    assert moved["percent_of_peak"] == 80.0


def test_a_loop_calls_its_kernel_again_and_a_branch_may_not() -> None:
    assert rate_row(row(1.0, calls=7), note("10", "4"), {}, MACHINE)["flops"] == 70
    assert "flops" not in rate_row(row(1.0, calls=1), note("10", "4", calls=2), {}, MACHINE)
    assert "flops" not in rate_row(row(1.0, calls=4), note("10", "4", calls=2), {}, MACHINE)


def test_what_is_not_known_is_left_out() -> None:
    assert work_at(note("n", "found"), {"n": 3}) is None
    assert work_at({"name": "k", "calls": 1}, {}) is None
    assert rate_row(row(1.0), None, {}, MACHINE) == row(1.0)
    assert "bound" not in rate_row(row(1.0), note("1", "1"), {}, {"peak_gflops": None})


def test_a_point_has_the_work_of_all_kernels_or_of_none() -> None:
    point = {"label": "opt", "dims": {"n": 10}, "median_ms": 2.0}
    views = {"name": "v", "family": "view", "calls": 1}
    profile = {"measured": True, "machine": {}, "points": [point]}
    notes = [note("100*n", "8*n"), {**note("n", "4"), "name": "l"}, views]
    (completed,) = complete(profile, notes, GPU, with_cost=False)["points"]
    assert (completed["flops"], completed["bytes"]) == (1010, 84)
    assert completed["gflops"] == pytest.approx(1010 / 2e6, abs=0.005)
    unknown = [*notes, {"name": "m", "calls": 1}]
    (completed,) = complete(profile, unknown, GPU, with_cost=False)["points"]
    assert "flops" not in completed
