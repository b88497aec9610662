"""Evaluates a profile's cost model at dims that were not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from relaxd.contract.dims.names import option_name, quote_name
from relaxd.errors import EstimateError, suggest

if TYPE_CHECKING:
    from relaxd.contract.bundle.profile import CostModel, Profile


@dataclass(frozen=True)
class Estimate:
    """Milliseconds of a call at the dims, and by how much, relative, the cost model was off at
    measured points that its fit did not see.
    """

    ms: float
    error_median: float
    error_max: float
    dims: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def estimate(profile: Profile, dims: Mapping[str, int]) -> Estimate:
    """The estimate at a value for each dim; one that the grid did not vary may be left out. Raises
    EstimateError for a profile without a cost model, an unknown or missing dim, and for values that
    lie outside of what was measured.
    """
    cost = profile.cost
    if cost is None:
        raise _no_model(profile)
    point = {name: value for name, value in cost.low.items() if cost.high[name] == value}
    point |= dims
    for name in point.keys() - cost.low.keys():
        known = ", ".join(map(quote_name, sorted(cost.low))) or "none"
        raise EstimateError(
            f"the profile has no dim {name!r}",
            hint=suggest(name, cost.low, f"its dims: {known}"),
            reason="dims",
        )
    for name, low in cost.low.items():
        _check(name, point.get(name), low, cost.high[name])
    if not _reached(profile, point):
        raise EstimateError(
            f"no measured point is as large as {_text(point)} in every dim",
            hint="an estimate would guess beyond the grid: give smaller values, or build with a"
            " grid that reaches them",
            reason="range",
        )
    return Estimate(milliseconds(cost, point), cost.error_median, cost.error_max, point)


def milliseconds(cost: CostModel, dims: Mapping[str, int]) -> float:
    """Evaluate the terms at the dims, also outside of the measured range."""
    return sum(
        term.ms * math.prod(float(dims[name]) ** power for name, power in term.dims.items())
        for term in cost.terms
    )


def _no_model(profile: Profile) -> EstimateError:
    if not profile.measured:
        why = f": {profile.reason}" if profile.reason else ""
        return EstimateError(f"the bundle was not measured{why}", reason="not_measured", hint=_HOW)
    if any(point.label.startswith("grid") for point in profile.points):
        return EstimateError(
            f"the grid has {len(profile.points)} measured points, too few for a cost model",
            reason="too_few_points",
            hint="build with more values of a dim, as in --grid seq=1,16,64,256,512",
        )
    return EstimateError("the profile has no grid", reason="no_grid", hint=_HOW)


_HOW = "build with --grid auto, or name values as in --grid seq=1,64,512"


def _check(name: str, value: int | None, low: int, high: int) -> None:
    if value is None:
        raise EstimateError(
            f"dim {name!r} has no value",
            hint=f"as in --dim {option_name(name)}={high}: it was measured from {low} to {high}",
            reason="dims",
        )
    if not low <= value <= high:
        raise EstimateError(
            f"{quote_name(name)}={value} is outside of what was measured, {low} to {high}",
            hint="build with a grid that reaches it",
            reason="range",
        )


def _reached(profile: Profile, dims: Mapping[str, int]) -> bool:
    """True if some measured point has every dim as large; a grid's largest may be left out."""
    return any(
        all(point.dims.get(name, value) >= value for name, value in dims.items())
        for point in profile.points
    )


def _text(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{quote_name(name)}={value}" for name, value in dims.items())
