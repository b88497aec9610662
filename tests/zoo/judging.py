"""Judges outputs beside a reference's by the reference's own size, and says where the reference is
too small or too uniform to show a fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.quantized import compare_quantized

TOLERANCE = 1e-3
FAINT = 1e-2
"""A smaller output may be the noise of sums that cancel, or what a sigmoid leaves near 0: there a
difference is wrong only if it were so in an output of this size, and no difference is no proof.
"""

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Judged:
    """One output at one point.

    worst: the greatest |ours - reference| / max(scale, |reference|), where scale is 1 or, if it is
    less, the reference's greatest magnitude; infinite where a shape or dtype differs, or only one
    of both is a number. low, high: the ends of the reference's finite values.
    """

    worst: float
    wrong: bool
    low: float = np.inf
    high: float = -np.inf

    @property
    def faint(self) -> bool:
        """True if the reference is too small to prove anything here."""
        return max(self.high, -self.low) < FAINT


_UNLIKE = Judged(np.inf, True)


def judge(result: Outputs, wanted: Outputs, rounds: bool = False) -> dict[str, Judged]:
    """Every output of the reference; all are wrong where the names differ.

    rounds: whether the model quantizes on the way, so that verification's tolerance for
    such models decides what is wrong.
    """
    if list(result) != list(wanted):
        return dict.fromkeys(wanted, _UNLIKE)
    judged = {name: _judged(result[name], wanted[name]) for name in wanted}
    if not rounds:
        return judged
    return {
        name: replace(one, wrong=_beyond_quantization(result[name], wanted[name]))
        for name, one in judged.items()
    }


def worst_of(point: Mapping[str, Judged]) -> float:
    """The worst of all outputs at one point; faint ones count only if they are wrong or there is no
    other.
    """
    counted = [item for item in point.values() if item.wrong or not item.faint]
    return max((item.worst for item in counted or point.values()), default=0.0)


def unproven(points: Sequence[Mapping[str, Judged]]) -> list[str]:
    """The outputs whose reference is faint at every point, or has nearly the same value throughout,
    so that a fault would not show.
    """
    return [name for name in points[0] if _hides([point[name] for point in points])]


def _hides(points: Sequence[Judged]) -> bool:
    spread = max(item.high for item in points) - min(item.low for item in points)
    return spread < FAINT or all(item.faint for item in points)


def _beyond_quantization(result: NDArray[Any], wanted: NDArray[Any]) -> bool:
    return compare_quantized(result, wanted).problem is not None


def _judged(result: NDArray[Any], wanted: NDArray[Any]) -> Judged:
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return _UNLIKE
    ours, theirs = result.astype("f8"), wanted.astype("f8")
    known = theirs[np.isfinite(theirs)]
    low, high = float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))
    unlike = (result != wanted) & ~(np.isnan(ours) & np.isnan(theirs))
    apart, beside = np.abs(ours[unlike] - theirs[unlike]), np.abs(theirs[unlike])
    if not np.isfinite(apart).all():
        return Judged(np.inf, True, low, high)
    if not apart.size:
        return Judged(0.0, False, low, high)
    scale = min(1.0, max(high, -low))
    with np.errstate(divide="ignore"):
        worst = float((apart / np.maximum(scale, beside)).max())
    allowed = TOLERANCE * np.maximum(max(scale, FAINT), beside)
    return Judged(worst, bool((apart > allowed).any()), low, high)
