"""Where each kernel is under the roofline: Williams, Waterman and Patterson, "Roofline" (2009).

A kernel of F operations that has to move B bytes can compute no more than the lesser of the peak of
its instruction and F / B times the bandwidth of what holds its operands. Which cache, or memory,
does so follows from how many bytes a call touches, since calls come one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.kernels.ceilings import ARITHMETIC, level_of
from compiler.targets.caches import Caches

Row = Mapping[str, Any]
"""A case: `group`, `shape`, `seconds` of a run, `executed` operations and those of the
`definition`, `bytes` moved and `touched`, and in turns with it `peak_gflops` and `share_of_peak`,
`bandwidth_gb_s` of what holds its operands and `share_of_bandwidth`; `others`.
"""


@dataclass(frozen=True)
class Rating:
    """A case under the roofline: GFLOP/s and GB/s of its runs, FLOP/byte, what bounds it, and the
    share of that bound which it reaches.
    """

    row: Row
    gflops: float
    gb_s: float
    intensity: float
    bound: str
    share: float


def rate_row(row: Row, caches: Caches) -> Rating:
    """The case under the lower of its two ceilings."""
    gflops, gb_s = (row[name] / row["seconds"] / 1e9 for name in ("executed", "bytes"))
    intensity = row["executed"] / row["bytes"]
    if intensity * row["bandwidth_gb_s"] < row["peak_gflops"]:
        bound, share = level_of(row["touched"], caches), row["share_of_bandwidth"]
    else:
        bound, share = ARITHMETIC, row["share_of_peak"]
    return Rating(row, gflops, gb_s, intensity, bound, share)


@dataclass(frozen=True)
class Spread:
    """The median, the least and the greatest value of some cases."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """At least one value."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Family:
    """All cases of a family that one thing bounds."""

    group: str
    bound: str
    cases: tuple[Rating, ...]

    def spread(self, name: str) -> Spread:
        """The spread of one figure of the ratings."""
        return Spread.of([getattr(case, name) for case in self.cases])

    @property
    def share_of_peak(self) -> Spread:
        """The share of the peak of multiply-adds in the family's arithmetic."""
        return Spread.of([case.row["share_of_peak"] for case in self.cases])


def by_family(cases: Sequence[Rating]) -> list[Family]:
    """The families in the order of their first cases, and in each what bounds the most cases
    first.
    """
    groups: dict[str, dict[str, list[Rating]]] = {}
    for case in cases:
        groups.setdefault(case.row["group"], {}).setdefault(case.bound, []).append(case)
    return [
        Family(group, bound, tuple(members))
        for group, bounds in groups.items()
        for bound, members in sorted(bounds.items(), key=lambda item: -len(item[1]))
    ]
