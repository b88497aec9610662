"""How far a side of a verification is, and about how long it will take."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compiler.isolation.step import Record
from compiler.verify.time_budget import TimeBudget

_SIDES = (
    ("reference", "reference"),
    ("library", "library"),
    (r"perturbed\d+|nudged\d+", "perturbed reference"),
    (r".*float64.*", "reference in float64"),
    (r"unrounded\..*", "model without quantization"),
)
"""What people read for the names of sides."""


@dataclass(frozen=True)
class Step:
    """side: as its files are named; done: of how many points out of `total` it is settled what
    becomes of them; seconds_left: about, of the time that passes here, None where the runs so far
    do not tell.
    """

    side: str
    done: int
    total: int
    seconds_left: float | None = None

    def describe(self) -> str:
        """Say it to people."""
        names = (name for pattern, name in _SIDES if re.fullmatch(pattern, self.side))
        return f"{next(names, 'reference')} at {self.done} of {self.total} shapes"


OnStep = Callable[[Step], None]


def ignore(step: Step) -> None:
    """Take no notice of it."""


@dataclass
class Follower:
    """Takes the records of a side's task as they come; efforts: of its points, by their index."""

    side: str
    efforts: Mapping[int, int]
    on_step: OnStep
    _left: dict[int, int] = field(init=False)
    _runs: TimeBudget = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._runs = dict(self.efforts), TimeBudget(0.0)
        self._report()

    def take(self, records: list[Record]) -> None:
        """Count the points among the records."""
        for record in records:
            effort = self._left.pop(record.get("index", -1), None)
            if effort is not None and "seconds" in record:
                self._runs.took(effort, record["seconds"])
        self._report()

    def _report(self) -> None:
        total = len(self.efforts)
        left = self._runs.forecast(self._left.values())
        self.on_step(Step(self.side, total - len(self._left), total, left))
