"""One row of the robustness table: a promise, and the faults or attacks that it is held against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of a row: `count` faults, at least one; what is random follows `seed`; `folder` is an
    empty folder of the run's own.
    """

    count: int
    seed: int
    folder: Path


@dataclass(frozen=True)
class Outcome:
    """The outcome of a row: if the promise held, the figures that show it, and, where it did not,
    what happened.
    """

    is_met: bool
    counts: Mapping[str, int | float] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """full: the number of faults at scale 1. unproven: what the row leaves open."""

    name: str
    promise: str
    full: int
    run: Callable[[Run], Outcome]
    unproven: str = ""

    def scale(self, scale: float) -> int:
        """The number of faults at a scale."""
        return max(1, round(self.full * scale))
