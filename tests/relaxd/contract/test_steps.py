"""The step that a build is at, in words."""

from typing import Any

import pytest

from relaxd.contract.steps import describe_step


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"stage": "import"}, "import"),
        ({"stage": "verify", "message": None, "seconds_left": None}, "verify"),
        ({"stage": "verify", "message": "at 3 of 8"}, "verify: at 3 of 8"),
        ({"stage": "verify", "message": "m", "seconds_left": 0.0}, "verify: m"),
        ({"stage": "verify", "message": "m", "seconds_left": 0.2}, "verify: m, about 1 s left"),
        ({"stage": "verify", "message": "m", "seconds_left": 61.7}, "verify: m, about 62 s left"),
        ({"stage": "verify", "message": "m", "seconds_left": 190}, "verify: m, about 3 min left"),
    ],
)
def test_a_step_in_words(step: dict[str, Any], text: str) -> None:
    assert describe_step(step) == text


@pytest.mark.parametrize("left", [float("nan"), float("inf"), -3, "soon", [4], 1e300])
def test_what_is_no_time_is_left_out(left: object) -> None:
    assert describe_step({"stage": "verify", "message": "m", "seconds_left": left}) == "verify: m"
