from relaxd.contract.bundle.profile import (
    KernelTime,
    KernelTimes,
    Profile,
    ReferenceLatency,
    TimedPoint,
)
from relaxd.contract.bundle.report import DimReport, NumericsReport, WeightError, WeightsReport
from relaxd.reports.sentences import sentences, summary

PASSED = NumericsReport("executed", "passed")


def rows(*shares: tuple[str, float, str, str]) -> KernelTimes:
    return KernelTimes(
        "opt",
        {"n": 4},
        tuple(
            KernelTime(name, 2, share, share, bound=bound or None, family=family or None)
            for name, share, family, bound in shares
        ),
    )


def test_the_family_that_takes_most_is_named_with_its_bound() -> None:
    times = rows(
        ("a", 0.4, "matmul", "memory"),
        ("b", 0.31, "matmul", "memory"),
        ("c", 0.2, "generic", ""),
        ("vm.builtin.reshape", 0.09, "", ""),
    )
    (only,) = sentences((), PASSED, [Profile(True, operators=times)])
    assert only == "71 % of the time is in 4 calls of memory-bound matmul kernels."


def test_how_much_of_the_roof_is_used_is_weighted_by_time() -> None:
    kernels = (
        KernelTime("a", 1, 3.0, 0.6, bound="memory", family="matmul", percent_of_peak=80.0),
        KernelTime("b", 1, 1.0, 0.2, bound="memory", family="matmul", percent_of_peak=40.0),
        KernelTime("c", 1, 1.0, 0.2, bound="compute", family="generic", percent_of_peak=3.0),
    )
    (only,) = sentences((), PASSED, [Profile(True, operators=KernelTimes(rows=kernels))])
    assert only == (
        "80 % of the time is in 2 calls of memory-bound matmul kernels, at 70 % of the memory "
        "bandwidth."
    )


def test_kernels_that_are_not_tuned_are_named_by_their_nodes() -> None:
    nodes = ("/encoder/LSTM", "/decoder/LSTM")
    kernels = tuple(
        KernelTime(f"lstm{i}", 1, 1.0, 0.31, family="given", nodes=(node,))
        for i, node in enumerate(nodes)
    )
    (only,) = sentences((), PASSED, [Profile(True, operators=KernelTimes(rows=kernels))])
    assert only == (
        "62 % of the time is in /encoder/LSTM, /decoder/LSTM (2 calls), whose kernels relaxd does "
        "not tune."
    )


def test_small_models_spend_their_time_outside_of_kernels() -> None:
    times = rows(("a", 0.3, "generic", ""), ("vm.builtin.alloc_tensor", 0.7, "", ""))
    (only,) = sentences((), PASSED, [Profile(True, operators=times)])
    assert only.startswith("70 % of the time is in the virtual machine")


def test_a_reference_that_is_faster_and_unrest_are_said() -> None:
    reference = ReferenceLatency(2.0, engine="onnxruntime 1.31.1")
    point = TimedPoint(6.0, label="max", dims={"n": 8}, reference=reference, stable=False)
    for dims, advice in (
        ((), "."),
        ((DimReport("n", min=8, max=8, verified_up_to=8),), "."),
        (
            (DimReport("n", max=64, verified_up_to=64),),
            ". A library for this size alone may be faster: --dim n=8.",
        ),
    ):
        unrest, slower = sentences(dims, PASSED, [Profile(True, points=(point,))])
        assert unrest == (
            "The timing is unreliable: other programs used the processor. Repeat with "
            "`relaxd bench` on an idle machine."
        )
        assert slower == f"At n=8 it takes 3.0 times as long as onnxruntime 1.31.1{advice}"


def test_a_latency_that_settled_counts_before_one_that_did_not() -> None:
    reference = ReferenceLatency(2.0, engine="onnxruntime 1.31.1")
    points = tuple(
        TimedPoint(ms, dims={"n": n}, reference=reference, stable=stable)
        for n, ms, stable in ((1, 12.0, False), (2, 3.0, True))
    )
    unrest, slower = sentences((), PASSED, [Profile(True, points=points)])
    assert unrest.startswith("1 of 2 timings is unreliable")
    assert slower.startswith("At n=2 it takes 1.5 times as long")


def test_ranges_that_nothing_reached_are_named() -> None:
    dims = (DimReport("w", verified_up_to=64), DimReport("h", max=512, verified_up_to=96))
    unbounded, short = sentences(dims, PASSED, [Profile(True)])
    assert unbounded == "w was tested only up to 64: declare its maximum, as in --dim w=1:64."
    assert short.startswith("h was tested up to 96 of 512")


def test_there_are_three_at_most_and_unchecked_numbers_come_first() -> None:
    dims = tuple(DimReport(name, verified_up_to=8) for name in "abcd")
    message = sentences(dims, NumericsReport("compiled_only", "not_run", "no such core"), [])
    assert len(message) == 3
    assert message[0] == "The outputs were not compared with a reference: no such core."
    assert message[1] == "Nothing was measured."


def test_the_summary_has_the_favoured_time_beside_the_reference_and_what_int8_changed() -> None:
    reference = ReferenceLatency(4.0, engine="onnxruntime 1.31.1")
    points = (
        TimedPoint(1.0, label="min", dims={"n": 1}, reference=reference),
        TimedPoint(2.8449, label="opt", dims={"n": 8}, reference=reference, stable=True),
    )
    numerics = NumericsReport(
        "executed",
        "passed",
        precision=WeightsReport("int8", error=0.00804, limit=0.02),
        weights=WeightsReport("int4", error=0.031),
    )
    assert summary(Profile(True, points=points), numerics) == (
        "2.84 ms at n=8, 0.71 of onnxruntime's time; int8 operands change outputs by 0.80 % "
        "(2.00 % is allowed); int4 weights change outputs by 3.10 %"
    )


def test_of_a_language_model_it_says_first_how_many_tokens_change() -> None:
    logits = WeightError("logits", error=0.047, argmax=0.8815, divergence=0.1014)
    caches = WeightError("present.29.value", error=0.1676, argmax=0.955, divergence=0.015)
    change = WeightsReport("int8", error=0.1676, outputs=(caches, logits))
    assert summary(Profile(True), NumericsReport("executed", "passed", precision=change)) == (
        "int8 operands change the most probable token at 11.9 % of random positions "
        "(divergence 0.1), outputs by up to 16.76 %"
    )


def test_the_summary_of_a_build_that_nobody_ran_is_empty() -> None:
    assert summary(Profile(False, reason="no such processor"), NumericsReport()) == ""


def test_the_summary_says_that_a_time_did_not_settle() -> None:
    points = (TimedPoint(0.5, label="sample", stable=False),)
    assert summary(Profile(True, points=points), PASSED) == (
        "0.5 ms (unreliable: other programs used the processor)"
    )


def test_a_call_that_was_made_once_is_not_called_unreliable() -> None:
    points = (TimedPoint(2e3, label="sample", runs=1, rounds=1, stable=False),)
    profile = Profile(True, points=points)
    assert summary(profile, PASSED) == "2e+03 ms"
    assert not list(sentences((), PASSED, [profile]))
