"""Values that no honest caller gives: beyond every limit, on it, and in between."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TypeAlias

import numpy as np

from tests.fuzz.case import Array


class Mood(StrEnum):
    """How many elements of an input are hostile."""

    NONE = "none"
    SINGLE = "single"
    ALL = "all"


@dataclass(frozen=True)
class Sample:
    """An input that is drawn: the dims of the call, and the input's shape and element type."""

    random: np.random.Generator
    dims: Mapping[str, int]
    shape: tuple[int, ...]
    dtype: np.dtype
    mood: Mood

    def value(self, extent: "Extent") -> int:
        """An extent at these dims."""
        return extent if isinstance(extent, int) else eval(extent, {}, dict(self.dims))

    def mix(self, legal: Array, hostile: Array) -> Array:
        """Replace as many legal elements by hostile ones as the mood asks for."""
        chosen = np.zeros(prod(self.shape), bool)
        if self.mood is Mood.ALL:
            chosen[:] = True
        elif self.mood is Mood.SINGLE and chosen.size:
            chosen[self.random.integers(chosen.size)] = True
        return np.where(chosen.reshape(self.shape), hostile, legal).astype(self.dtype)


Extent: TypeAlias = int | str
"""A number, or an expression of dims."""
Drawing: TypeAlias = Callable[[Sample], Array]

_FAR = (1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63)


def edges(low: int, high: int, dtype: np.dtype) -> Array:
    """Around both ends of [low, high], and where integers of 32 and 64 bits end, as far as the
    dtype goes.
    """
    near = {e + step for e in (low, high, 0) for step in (-2, -1, 0, 1, 2)}
    far = {sign * e + step for e in _FAR for sign in (1, -1) for step in (-1, 0, 1)}
    info = np.iinfo(dtype)
    numbers = sorted(e for e in near | far | {2 * high} if info.min <= e <= info.max)
    return np.array(numbers, dtype)


def integer(low: Extent, high: Extent) -> Drawing:
    """Integers that may be from low to high, both included."""

    def draw(sample: Sample) -> Array:
        least, most = sample.value(low), sample.value(high)
        legal = sample.random.integers(least, max(least, most) + 1, sample.shape)
        return sample.mix(
            legal, sample.random.choice(edges(least, most, sample.dtype), sample.shape)
        )

    return draw


def index(extent: Extent) -> Drawing:
    """Positions on an axis, counted from either end."""
    return integer(f"-({extent})", f"({extent})-1")


def length(extent: Extent) -> Drawing:
    """How many of the first elements of an axis count."""
    return integer(0, extent)


SIZES = integer(0, 5)
"""Extents, counts and repeats."""
_FLOATS = (
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1.0, 1e-45, 1e-30, 1e10, -1e10, 1e30, -1e30),
    *(3.4e38, -3.4e38, 2.0**31, -(2.0**31) - 1, 2.0**63, -(2.0**63), 2.0**62 * 1.5),
)


def real(low: float, high: float) -> Drawing:
    """Floats that may be from low to high."""

    def draw(sample: Sample) -> Array:
        legal = sample.random.uniform(low, high, sample.shape)
        return sample.mix(legal, sample.random.choice(_FLOATS, sample.shape))

    return draw


def normal(sample: Sample) -> Array:
    """Harmless numbers of any element type."""
    if sample.dtype == bool:
        return np.asarray(sample.random.random(sample.shape) < 0.5)
    if sample.dtype.kind in "iu":
        return sample.random.integers(0, 4, sample.shape).astype(sample.dtype)
    return sample.random.standard_normal(sample.shape).astype(sample.dtype)
