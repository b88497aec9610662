"""The step that a build is at, in words."""

from collections.abc import Mapping
from typing import Any

_LONGEST = 1e6


def describe_step(step: Mapping[str, Any]) -> str:
    """Say the `stage`, and the `message` and `seconds_left` of a step that has them.

    step: the data of an event `build.stage`, or a message of a compile process.
    """
    text = str(step["stage"])
    if step.get("message"):
        text += f": {step['message']}"
    left = step.get("seconds_left")
    if isinstance(left, int | float) and 0 < left < _LONGEST:
        text += f", about {describe_seconds(left)} left"
    return text


def describe_seconds(seconds: float) -> str:
    """Say a time as people would: 1 s at the least, minutes from a hundred seconds on."""
    if seconds < 100:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min"
