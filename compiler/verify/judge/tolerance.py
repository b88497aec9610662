"""Compares an output with its reference, by tolerances that belong to its dtype."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

MOST = 0.1
"""The share of an output's spread that a tolerance may allow: a constant would pass by more."""
_LEAST_COUNT = 32
"""Of fewer elements the deviation says little of an output's spread."""
_MOST_VALUES = 1 << 18
_NORMAL_NINE_TENTHS = 3.29
"""Deviations of a normal distribution between its quantiles of 5 % and 95 %."""


@dataclass(frozen=True)
class Tolerance:
    """|got - want| may reach atol * range + rtol * |want| + slack, and never more than the greater
    of `most` and MOST * |want - center|; the range is the largest finite |want|.

    steps: by how much integers may differ. coarse: neighbouring numbers of the dtype are too far
    apart for `most` to bound each difference, so that it bounds their mean.
    """

    atol: float
    rtol: float
    steps: int = 0
    slack: float = 0.0
    most: float = math.inf
    center: float = 0.0
    coarse: bool = False

    def usual(self, want: np.ndarray[Any, Any], largest: float) -> np.ndarray[Any, Any]:
        """Return the tolerance by element of finite float64, without slack and bound; largest: the
        range.
        """
        return np.asarray(self.steps + self.atol * largest + self.rtol * np.abs(want))

    def bounds(self, want: np.ndarray[Any, Any], largest: float) -> np.ndarray[Any, Any]:
        """Return what the tolerance never exceeds."""
        bounds = np.maximum(self.most, MOST * np.abs(want - self.center))
        return np.asarray(np.maximum(bounds, self.usual(want, largest)) if self.coarse else bounds)

    def by_element(
        self, want: np.ndarray[Any, Any], largest: float | None = None
    ) -> np.ndarray[Any, Any]:
        """Return the tolerance by element; largest: the range, if it is not that of `want`."""
        if largest is None:
            largest = float(np.abs(want).max(initial=0.0))
        plain = self.usual(want, largest) + self.slack
        bounded = self.most < math.inf
        return np.asarray(np.minimum(plain, self.bounds(want, largest)) if bounded else plain)


_TOLERANCES = {
    "float16": Tolerance(1e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 5e-2),
    "float32": Tolerance(1e-4, 1e-3),
    "float64": Tolerance(1e-6, 1e-6),
    # One step, which a number close to the middle of two may take either way.
    "float8_e4m3fn": Tolerance(1e-3, 0.13, coarse=True),
    "float8_e4m3fnuz": Tolerance(1e-3, 0.13, coarse=True),
    "float8_e5m2": Tolerance(1e-4, 0.26, coarse=True),
    "float8_e5m2fnuz": Tolerance(1e-4, 0.26, coarse=True),
    "float8_e8m0fnu": Tolerance(0.0, 1.0, coarse=True),
    "float4_e2m1fn": Tolerance(0.1, 0.5, coarse=True),
}
_EXACT = Tolerance(0.0, 0.0)
_ONE_STEP = Tolerance(0.0, 0.0, steps=1, coarse=True)
_BLOCK = 1 << 16
"""Elements that are compared at a time: what is made of them stays in a processor's cache."""
_SUBBYTE_INTEGERS = ("uint4", "int4", "uint2", "int2")
_QUANTIZED_INTEGERS = ("uint8", "int8", "uint16", "int16", *_SUBBYTE_INTEGERS)


@dataclass(frozen=True)
class Difference:
    """max_abs: greatest difference over elements finite on both sides; max_rel: of those that stand
    out from atol, the relative one.

    problem: what is wrong, None when nothing is; structural: it is the shape, the dtype or that
    there is no such output. range: the largest finite |want| of floats.
    of_tolerance: how much of what is allowed the element uses that uses the most of it; None where
    nothing is allowed, and elements differ.
    """

    max_abs: float
    max_rel: float
    problem: str | None
    range: float = 0.0
    of_tolerance: float | None = None
    structural: bool = False


def known_tolerances() -> dict[str, Tolerance]:
    """By dtype, those that are not exact."""
    return dict(_TOLERANCES)


def tolerance_of(
    dtype: str, atol: float | None, rtol: float | None, quantized: bool = False
) -> Tolerance:
    """The dtype's tolerance, a given atol or rtol in its place; integers and booleans are exact.

    quantized: activations are rounded to some eight bits on the way. A sum that falls on the other
    side of a half moves one of them by a step: quantized integers may be one step off.
    """
    own = _TOLERANCES.get(dtype)
    if own is None:
        return _ONE_STEP if quantized and dtype in _QUANTIZED_INTEGERS else _EXACT
    return replace(
        own, atol=own.atol if atol is None else atol, rtol=own.rtol if rtol is None else rtol
    )


def compare(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tolerance: Tolerance
) -> Difference:
    """Shapes and dtypes must be equal, infinities and NaNs at the same positions, the rest within
    tolerance.
    """
    if got.dtype != want.dtype:
        return missing(f"dtype {got.dtype} where the reference has {want.dtype}")
    if got.shape != want.shape:
        return missing(f"shape {list(got.shape)} where the reference has {list(want.shape)}")
    if not got.size:
        return Difference(0.0, 0.0, None, of_tolerance=0.0)
    if want.dtype.kind in "biu" or want.dtype.name in _SUBBYTE_INTEGERS:
        steps = np.abs(got.astype(np.float64) - want.astype(np.float64))
        wrong, farthest = (
            int(np.count_nonzero((got != want) & ~((steps > 0) & (steps <= tolerance.steps)))),
            float(steps.max()),
        )
        problem = f"{wrong} of {got.size} elements differ" if wrong else None
        if tolerance.coarse and steps.mean() > tolerance.most:
            problem = problem or _far_in_the_mean(float(steps.mean()), tolerance)
        used = _used(steps, np.full_like(steps, tolerance.steps))
        return Difference(farthest, 0.0, problem, of_tolerance=used)
    return _compare_floats(got, want, tolerance)


def _compare_floats(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tolerance: Tolerance
) -> Difference:
    """Compare block by block: arrays in float64 of all elements would take most of the time."""
    count = odd = outside = 0
    largest = farthest = relative = total = 0.0
    used: float | None = 0.0
    for _, theirs, differing in _finite_blocks(got, want):
        odd, count = odd + differing, count + theirs.size
        largest = max(largest, float(np.abs(theirs).max(initial=0.0)))
    for ours, theirs, _ in _finite_blocks(got, want):
        apart, magnitude = np.abs(ours - theirs), np.abs(theirs)
        allowed = tolerance.by_element(theirs, largest)
        outside += int(np.count_nonzero(apart > allowed))
        total += float(apart.sum())
        farthest = max(farthest, float(apart.max(initial=0.0)))
        large = magnitude > tolerance.atol * largest
        relative = max(relative, float((apart[large] / magnitude[large]).max(initial=0.0)))
        share = _used(apart, allowed)
        used = None if used is None or share is None else max(used, share)
    problem = f"{odd} elements are infinite or NaN on one side alone" if odd else None
    if outside:
        problem = problem or f"{outside} of {got.size} elements differ by more than the tolerance"
    if tolerance.coarse and count and total / count > tolerance.most:
        problem = problem or _far_in_the_mean(total / count, tolerance)
    return Difference(farthest, relative, problem, largest, None if odd else used)


def _finite_blocks(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]]:
    """Elements that are finite on both sides, as float64, and how many others differ."""
    lefts, rights = got.reshape(-1), want.reshape(-1)
    for first in range(0, lefts.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        ours, theirs = lefts[part].astype(np.float64), rights[part].astype(np.float64)
        finite = np.isfinite(ours) & np.isfinite(theirs)
        if finite.all():
            yield ours, theirs, 0
        else:
            differing = _count_different(ours[~finite], theirs[~finite])
            yield ours[finite], theirs[finite], differing


def missing(problem: str) -> Difference:
    """The difference where there is nothing to compare."""
    return Difference(0.0, 0.0, problem, structural=True)


@dataclass(frozen=True)
class Spread:
    """How much the finite values of an output differ among themselves.

    count: of values; standard: their deviation; deviation: the same, but no more than that of a
    normal distribution with the same middle nine tenths; 0 for what is constant. center: the
    median; largest: |value|.
    """

    count: int = 0
    standard: float = 0.0
    deviation: float = 0.0
    center: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, *arrays: np.ndarray[Any, Any]) -> "Spread":
        """Measure all values together, or many of them at random. Values at a least or greatest one
        that occurs several times are saturated or masked, and count only where there are no others.
        """
        flat = np.concatenate([_sample(array).astype(np.float64) for array in arrays])
        finite = flat[np.isfinite(flat)]
        if not finite.size:
            return cls()
        values, largest = _inner(finite), float(np.abs(finite).max())
        low, center, high = np.quantile(values, (0.05, 0.5, 0.95))
        constant, scale = values.min() == values.max(), largest or 1.0
        deviation = standard = 0.0 if constant else float((values / scale).std() * scale)
        robust = float(high - low) / _NORMAL_NINE_TENTHS
        if robust > 0 and values.size >= _LEAST_COUNT:
            deviation = min(deviation, robust)
        return cls(finite.size, standard, deviation, float(center), largest)

    @property
    def constant(self) -> bool:
        """Tell whether several values are all the same."""
        return self.count > 1 and self.deviation == 0

    @property
    def tells(self) -> bool:
        """Tell whether there are values enough, and different ones."""
        return self.count >= _LEAST_COUNT and self.deviation > 0

    @property
    def scale(self) -> float:
        """Return what differences are beside: the deviation; of a constant or a single value its
        magnitude.
        """
        return self.deviation or self.largest

    def limit_to_scale(self, tolerance: Tolerance) -> Tolerance:
        """Limit the tolerance so that no element may be off by more than MOST of the scale, or of
        its own distance from the center.
        """
        return replace(tolerance, most=MOST * self.scale, center=self.center)


def _sample(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = array.reshape(-1)
    if flat.size <= _MOST_VALUES:
        return flat
    return flat[np.random.default_rng(0).integers(0, flat.size, _MOST_VALUES)]


def _inner(finite: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values between repeated extremes; all where these are not two different ones."""
    inner = finite
    for extreme in (finite.min(), finite.max()):
        if np.count_nonzero(finite == extreme) > 1:
            inner = inner[inner != extreme]
    return inner if inner.size > 1 and inner.min() != inner.max() else finite


def _far_in_the_mean(mean: float, tolerance: Tolerance) -> str:
    return f"the mean difference is {mean:.2g}, more than {tolerance.most:.2g}"


def _used(apart: np.ndarray[Any, Any], allowed: np.ndarray[Any, Any]) -> float | None:
    differs = apart > 0
    if not allowed[differs].all():
        return None
    return float((apart[differs] / allowed[differs]).max(initial=0.0))


def _count_different(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> int:
    return int(np.count_nonzero(~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))))
