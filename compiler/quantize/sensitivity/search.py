"""Finds the fewest layers to keep in float32, so that an error stays within a budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relaxd.contract.narrow import Unit

Measure: TypeAlias = Callable[[Sequence[Unit]], float]
"""The error of the outputs where these units round and all others do not."""

GROUPS = 64
"""Groups of neighbours that are measured first: of fewer units, each alone."""
RUNS = 128
"""Measurements of groups. Those left once all groups are measured split the worst of them."""
MARGIN = 0.9
"""The share of the budget that the reference may take: a library's error is a few percent off."""
_DIGITS = 3
"""Digits of an error that count: last bits of sums are not to decide which of two is greater."""


@dataclass(frozen=True)
class Group:
    """Neighbouring units, and the error where they alone round."""

    units: tuple[Unit, ...]
    error: float

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of all their layers."""
        return tuple(name for unit in self.units for name in unit)

    @property
    def share(self) -> float:
        """The error of one unit, as if all had the same: squares of independent errors add up."""
        return self.error / math.sqrt(len(self.units))


@dataclass(frozen=True)
class Selection:
    """error: where all units round; groups: from the worst on, none where that is within the
    budget; retained: how many of them stay float32; left: the error of the others.
    """

    error: float
    groups: tuple[Group, ...] = ()
    retained: int = 0
    left: float = 0.0


def search(units: Sequence[Unit], budget: float, measure: Measure, alone: Measure) -> Selection:
    """The groups to keep. measure: called some ten times at most; alone: `RUNS` times at most, of
    one group each, and only where not all units can round.
    """
    allowed = MARGIN * budget
    error = measure(units)
    if error <= allowed:
        return Selection(error, left=error)
    groups = _order(units, alone)
    # Without any rounded unit there is no error; a greater number of kept ones is known to do.
    few, enough, left = 0, len(groups), 0.0
    while enough - few > 1:
        middle = (few + enough) // 2
        remaining = measure([unit for group in groups[middle:] for unit in group.units])
        if remaining <= allowed:
            enough, left = middle, remaining
        else:
            few = middle
    return Selection(error, tuple(groups), enough, left)


def _order(units: Sequence[Unit], alone: Measure) -> list[Group]:
    """All units in groups, those first whose units have the greatest errors."""

    def measured(part: Sequence[Unit]) -> Group:
        return Group(tuple(part), float(f"{alone(part):.{_DIGITS}g}"))

    size = -(-len(units) // GROUPS)
    groups = [measured(units[first : first + size]) for first in range(0, len(units), size)]
    for _ in range((RUNS - len(groups)) // 2):
        wide = [group for group in groups if len(group.units) > 1]
        if not wide:
            break
        worst = max(wide, key=lambda group: group.share)
        first, middle = groups.index(worst), len(worst.units) // 2
        groups[first : first + 1] = [measured(worst.units[:middle]), measured(worst.units[middle:])]
    return sorted(groups, key=lambda group: -group.share)
