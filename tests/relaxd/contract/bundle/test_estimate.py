from typing import Any

import pytest

from relaxd.contract.bundle.profile import Profile
from relaxd.errors import EstimateError

COST = {
    "terms": [
        {"ms": 0.5, "dims": {}},
        {"ms": 0.01, "dims": {"batch": 1, "seq": 1}},
        {"ms": 2e-5, "dims": {"seq": 2}},
    ],
    "points": 12,
    "error_median": 0.02,
    "error_max": 0.07,
    "low": {"batch": 1, "seq": 8, "width": 4},
    "high": {"batch": 8, "seq": 512, "width": 4},
}


def profile(*points: dict[str, int], **changed: Any) -> Profile:
    timed = [
        {"label": f"grid-{index}", "dims": {"width": 4, **dims}, "median_ms": 1.0}
        for index, dims in enumerate(points)
    ]
    return Profile.from_json({"measured": True, "points": timed, "cost": COST, **changed})


FULL = profile({"batch": 1, "seq": 8}, {"batch": 8, "seq": 512})


def test_the_terms_are_summed_and_a_dim_of_one_value_may_be_left_out() -> None:
    result = FULL.estimate({"batch": 4, "seq": 300})
    assert result.ms == pytest.approx(0.5 + 0.01 * 4 * 300 + 2e-5 * 300**2)
    assert (result.error_median, result.error_max) == (0.02, 0.07)
    assert result.dims == {"batch": 4, "seq": 300, "width": 4}
    assert FULL.estimate({"batch": 4, "seq": 300, "width": 4}) == result


@pytest.mark.parametrize(
    ("dims", "reason", "message"),
    [
        ({"seq": 300}, "dims", "'batch' has no value"),
        ({"batch": 1, "seq": 8, "rows": 2}, "dims", "no dim 'rows'"),
        ({"batch": 9, "seq": 8}, "range", "batch=9 is outside of what was measured, 1 to 8"),
        ({"batch": 1, "seq": 7}, "range", "seq=7 is outside"),
        ({"batch": 1, "seq": 8, "width": 5}, "range", "width=5 is outside"),
    ],
)
def test_nothing_is_extrapolated(dims: dict[str, int], reason: str, message: str) -> None:
    with pytest.raises(EstimateError, match=message) as refused:
        FULL.estimate(dims)
    assert refused.value.reason == reason
    assert refused.value.hint


def test_a_corner_that_was_left_out_is_beyond_the_grid() -> None:
    """The budget ended before the largest batch of the longest sequences."""
    partial = profile({"batch": 8, "seq": 64}, {"batch": 1, "seq": 512})
    assert partial.estimate({"batch": 8, "seq": 64}).ms > 0
    with pytest.raises(EstimateError, match="no measured point is as large") as refused:
        partial.estimate({"batch": 4, "seq": 300})
    assert refused.value.reason == "range"


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        (Profile(True), "no_grid"),
        (Profile(reason="no such core"), "not_measured"),
        (profile({"batch": 1, "seq": 8}, cost=None), "too_few_points"),
    ],
)
def test_a_profile_without_a_cost_model_says_what_to_do(without: Profile, reason: str) -> None:
    with pytest.raises(EstimateError) as refused:
        without.estimate({"seq": 8})
    assert refused.value.reason == reason
    assert "--grid" in (refused.value.hint or "")
