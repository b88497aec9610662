"""One row of the robustness table: a promise, and the faults or attacks that it is held against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
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
    """full: the number of faults at scale 1. unproven: what the row leaves open. fewest: the number
    of faults with which each kind of them occurs. minimums: the least of a figure for each fault:
    with less of it the promise was not put to the test. maximums: the bounds that it names.
    """

    name: str
    promise: str
    full: int
    run: Callable[[Run], Outcome]
    unproven: str = ""
    fewest: int = 1
    minimums: Mapping[str, float] = field(default_factory=dict)
    maximums: Mapping[str, float] = field(default_factory=dict)

    def scale(self, scale: float) -> int:
        """The number of faults at a scale."""
        return max(self.fewest, round(self.full * scale))

    def check(self, outcome: Outcome, count: int) -> Outcome:
        """The outcome of `count` faults, not met where its figures are outside of the row's own
        bounds. A minimum is at least 1; a figure that the run did not come to is outside.
        """
        wrong = list[str]()
        for name, each in self.minimums.items():
            least, value = max(1, int(each * count)), outcome.counts.get(name, 0)
            if value < least:
                wrong.append(
                    f"{name}: {value:g}, less than {least}, which is no test of the promise"
                )
        for name, most in self.maximums.items():
            if not (value := outcome.counts.get(name, inf)) <= most:
                wrong.append(f"{name}: {value:g}, more than {most:g}")
        detail = "\n".join([outcome.detail, *wrong]).strip() if wrong else outcome.detail
        return Outcome(outcome.is_met and not wrong, outcome.counts, detail)


def p99(seconds: Sequence[float]) -> float:
    """The value that 99 of 100 do not exceed: of fewer than 100, the largest."""
    return sorted(seconds)[ceil(0.99 * len(seconds)) - 1] if seconds else inf
