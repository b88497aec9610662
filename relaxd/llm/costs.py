"""What calls of several rows take, and so how many guesses pay."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relaxd.llm.seats import Logits, Seats

_TRIES = 3


class _Places(Protocol):
    def extend(self, seat: int, tokens: list[int]) -> Logits: ...

    def truncate(self, seat: int, length: int) -> None: ...


@dataclass(frozen=True)
class Costs:
    """rows: what a call of one row takes, of two, and so on, in calls of one row; guess: what a
    guess takes in the same measure.
    """

    rows: tuple[float, ...]
    guess: float = 0.0

    def call(self, rows: int) -> float:
        """What a call of so many rows takes; beyond those that are known, in a straight line."""
        known = len(self.rows)
        if rows <= known:
            return self.rows[rows - 1]
        slope = (self.rows[-1] - self.rows[0]) / (known - 1) if known > 1 else 1.0
        return self.rows[-1] + slope * (rows - known)


def measured(seats: _Places, most: int, smaller: Seats | None = None) -> Costs:
    """What calls of up to `most` rows take now, in an empty place; smaller: places of the model
    that guesses.
    """
    one = _seconds(seats, 1)
    rows = [1.0]
    for count in range(2, most + 1):
        # What one run took longer than one of more rows was something else.
        rows.append(max(_seconds(seats, count) / one, rows[-1]))
    return Costs(tuple(rows), 0.0 if smaller is None else _seconds(smaller, 1) / one)


def _seconds(seats: _Places, rows: int) -> float:
    """Of a call of so many rows, the shortest of a few."""
    took = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        seats.extend(0, [0] * rows)
        took.append(time.perf_counter() - began)
        seats.truncate(0, 0)
    return min(took)


def best_count(lengths: Sequence[int], rates: Sequence[float], costs: Costs) -> int:
    """How many guesses each answer of one call gets at most, so that the most tokens come in the
    time that the call takes; 0 where none pay.

    lengths: guesses that there are for each answer; rates: how probable each of them is.
    """

    def pace(count: int) -> float:
        tokens = sum(
            rate**i
            for length, rate in zip(lengths, rates, strict=True)
            for i in range(min(length, count) + 1)
        )
        guesses = costs.guess * sum(min(length, count) for length in lengths)
        return tokens / (costs.call(len(lengths) * (count + 1)) + guesses)

    return max(range(max(lengths) + 1), key=pace)
