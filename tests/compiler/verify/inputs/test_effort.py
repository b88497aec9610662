"""The effort of runs: what the counts of kernels say of it, and what becomes of their times."""

from pathlib import Path

from compiler.verify.inputs.effort import effort
from compiler.verify.inputs.inputs import Trial, Trials
from compiler.verify.inputs.points import Point
from compiler.verify.time_budget import TimeBudget

WEIGHTS, CACHES = 500_000_000, 46_080
"""Bytes that a step of a decoder of 135 million parameters reads, and those of a token's caches."""

KERNELS = [
    {"name": "matmul", "flops": f"{WEIGHTS // 2}*seq", "bytes": f"{WEIGHTS}+4096*seq"},
    {"name": "attention", "flops": "0", "bytes": f"{CACHES}*(past+seq)"},
    {"name": "of_values", "flops": "found", "bytes": "4*found"},
    {"name": "unknown"},
]


def trial(past: int, seq: int) -> Trial:
    plain = Trial(0, Point("one", {"past": past, "seq": seq}), Path(), 8 * seq + CACHES * past)
    (weighed,) = Trials((plain,), ()).add_work(KERNELS).chosen
    return weighed


def test_operations_count_as_an_eighth_of_a_byte() -> None:
    assert effort([{"flops": "800*n", "bytes": "7*n"}], {"n": 2}) == 214


def test_kernels_whose_work_the_dims_do_not_tell_are_left_out() -> None:
    known = WEIGHTS + 4096 + WEIGHTS // 16 + CACHES
    assert effort(KERNELS, {"past": 0, "seq": 1}) == known
    assert trial(0, 1).effort == 8 + known
    assert effort([], {"n": 1}) == 0


def test_a_past_does_not_count_as_its_bytes_beside_a_few_tokens() -> None:
    """Inputs of 8 bytes a token, then of two megabytes: the time hardly grows with them."""
    budget = TimeBudget(30)
    budget.took(trial(0, 1).effort, 0.5)
    budget.took(trial(0, 16).effort, 1.0)
    assert budget.objection(trial(40, 16).effort) is None
    assert budget.objection(trial(0, 2048).effort) is not None
