import math

import pytest

from relaxd.contract.bundle.diff import BuildDiff, Change, LatencyChange, OutputChange
from relaxd.errors import DeclarationError
from relaxd.reports.gates import Gate

POINT = {"n": 4}
SURE = LatencyChange(POINT, 1.0, 1.1, 1.10, 1.08, 1.12, 100)
UNSURE = LatencyChange(POINT, 1.0, 1.1, 1.10, 1.02, 1.2, 100)
NEAR = OutputChange("y", POINT, 1e-3, 1e-4, 0.9995, 0.98)


def failing_gates(text: str, diff: BuildDiff) -> bool:
    return Gate.of(text).judge(diff).failed


def test_a_latency_fails_with_confidence_only() -> None:
    assert failing_gates("latency>5%", BuildDiff("a", "b", latency=(SURE,)))
    assert not failing_gates("latency>5%", BuildDiff("a", "b", latency=(UNSURE,)))
    assert not failing_gates("latency>9%", BuildDiff("a", "b", latency=(SURE, UNSURE)))


def test_sizes_and_outputs() -> None:
    diff = BuildDiff("a", "b", sizes=(Change("total", 100, 103),), outputs=(NEAR,))
    assert failing_gates("size>2%", diff)
    assert not failing_gates("size > 3.5 %", diff)
    assert failing_gates("cosine<0.9999", diff)
    assert not failing_gates("cosine<0.999", diff)
    assert failing_gates("argmax<0.99", diff)
    assert failing_gates("max>5e-4", diff)
    assert not failing_gates("mean>5e-4", diff)


def test_a_few_bytes_less_have_no_sign() -> None:
    diff = BuildDiff("a", "b", sizes=(Change("total", 1_000_000, 999_999),))
    assert Gate.of("size>1%").judge(diff).said == "+0.00%"


def test_what_is_no_number_fails() -> None:
    shapes = OutputChange("y", POINT, math.inf, math.inf, math.nan)
    diff = BuildDiff("a", "b", outputs=(shapes,))
    assert failing_gates("cosine<0.5", diff)
    assert failing_gates("max>1", diff)


@pytest.mark.parametrize("text", ["latency>5", "latency<5%", "speed>1%", "cosine<a", "", "size>e%"])
def test_conditions_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Gate.of(text)
    assert "latency>5%" in (caught.value.hint or "")
