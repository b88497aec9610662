"""Times calls that take turns, in rounds, until their medians settle."""

import math
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from compiler.isolation.step import Record

WARM_UPS = 2
FEWEST_ROUNDS, MOST_ROUNDS = 3, 12
_MOST_CALLS = 20
_ROUND_SECONDS = 0.02
_SETTLED = 0.03
"""Medians of three rounds in a row that lie so close together do not move any more."""

Call = Callable[[], Any]


def alternating(
    calls: Mapping[str, Call], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Record]:
    """Quartiles, extremes and 95th percentile of each call in milliseconds, with `runs`, `rounds`
    and whether it is `stable`; every call is made at least three times, however long it takes.
    """
    deadline = clock() + seconds
    once = {name: _warm(call, deadline, clock) for name, call in calls.items()}
    most = max(once.values())
    per_round = max(1, min(_MOST_CALLS, math.ceil(_ROUND_SECONDS / max(most, 1e-6))))
    rounds: dict[str, list[list[float]]] = {name: [] for name in calls}
    for done in range(MOST_ROUNDS):
        if done >= FEWEST_ROUNDS and (clock() > deadline or all(map(_settled, rounds.values()))):
            break
        for name, call in calls.items():
            rounds[name].append([_time_call(call, clock) for _ in range(per_round)])
    return {name: _summary(taken) for name, taken in rounds.items()}


def _warm(call: Call, deadline: float, clock: Callable[[], float]) -> float:
    """Seconds of the last of some calls, the first of which do what is done once."""
    for _ in range(WARM_UPS):
        taken = _time_call(call, clock)
        if clock() > deadline:
            break
    return taken


def _time_call(call: Call, clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return clock() - started


def _settled(rounds: list[list[float]]) -> bool:
    medians = [median(times) for times in rounds[-3:]]
    return len(medians) == 3 and max(medians) <= (1 + _SETTLED) * min(medians)


def _summary(rounds: list[list[float]]) -> Record:
    times = sorted(taken for one in rounds for taken in one)

    def quantile(part: float) -> float:
        return round(times[min(int(len(times) * part), len(times) - 1)] * 1e3, 4)

    return {
        "median_ms": round(median(times) * 1e3, 4),
        "min_ms": quantile(0.0),
        "p25_ms": quantile(0.25),
        "p75_ms": quantile(0.75),
        "p95_ms": quantile(0.95),
        "runs": len(times),
        "rounds": len(rounds),
        "stable": _settled(rounds),
    }
