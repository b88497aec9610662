"""The cost of calls by their number of tokens, and how many draft tokens are profitable."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relaxd.llm.slots import Logits, Slots

_TRIES = 3


class _Extendable(Protocol):
    def extend(self, slot: int, tokens: list[int]) -> Logits: ...

    def truncate(self, slot: int, length: int) -> None: ...


@dataclass(frozen=True)
class Costs:
    """rows: the time of a call with one token, with two, and so on, relative to one; draft: the
    time to draft a token, in the same unit.
    """

    rows: tuple[float, ...]
    draft: float = 0.0

    def call(self, rows: int) -> float:
        """The cost of a call, extrapolated linearly beyond the measured number of tokens."""
        known = len(self.rows)
        if rows <= known:
            return self.rows[rows - 1]
        slope = (self.rows[-1] - self.rows[0]) / (known - 1) if known > 1 else 1.0
        return self.rows[-1] + slope * (rows - known)


def measure_costs(slots: _Extendable, most: int, smaller: Slots | None = None) -> Costs:
    """Measure calls of up to `most` tokens, in an empty slot; smaller: the slots of the draft
    model.
    """
    one = _seconds(slots, 1)
    rows = [1.0]
    for count in range(2, most + 1):
        # A call that took longer than one of more tokens was disturbed.
        rows.append(max(_seconds(slots, count) / one, rows[-1]))
    return Costs(tuple(rows), 0.0 if smaller is None else _seconds(smaller, 1) / one)


def _seconds(slots: _Extendable, rows: int) -> float:
    """The shortest time of a few calls."""
    took = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        slots.extend(0, [0] * rows)
        took.append(time.perf_counter() - began)
        slots.truncate(0, 0)
    return min(took)


def best_count(lengths: Sequence[int], rates: Sequence[float], costs: Costs) -> int:
    """The number of draft tokens for each completion that accepts the most tokens per time; 0 where
    none are profitable.

    lengths: how many draft tokens each completion has; rates: their probability of acceptance.
    """

    def pace(count: int) -> float:
        tokens = sum(
            rate**i
            for length, rate in zip(lengths, rates, strict=True)
            for i in range(min(length, count) + 1)
        )
        drafting = costs.draft * sum(min(length, count) for length in lengths)
        return tokens / (costs.call(len(lengths) * (count + 1)) + drafting)

    return max(range(max(lengths) + 1), key=pace)
