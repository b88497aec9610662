"""Times calls that take turns, in rounds, until their medians settle."""

import math
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from compiler.isolation.step import Record

FEWEST_ROUNDS, MOST_ROUNDS = 3, 12
_MOST_CALLS = 20
_ROUND_SECONDS = 0.02
_LONG_SECONDS = 0.1
"""A call that takes so long is warm once it was made: what is done once takes milliseconds."""
_SETTLED = 0.03
"""Medians of three rounds in a row that lie so close together do not move any more."""

Call = Callable[[], Any]


def alternating(
    calls: Mapping[str, Call],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    *,
    first: Mapping[str, float] | None = None,
) -> dict[str, Record]:
    """Quartiles, extremes and 95th percentile of each call in milliseconds, with `runs`, `rounds`
    and whether it is `stable`.

    There are FEWEST_ROUNDS at least, beyond the time too; calls so long that these take more than
    the time are made once or more often, and their first counts.

    first: seconds of calls that were made already.
    """
    deadline, known = clock() + seconds, first or {}
    taken = {name: _warm(call, known.get(name), clock) for name, call in calls.items()}
    most, once = max(taken.values()), sum(taken.values())
    per_round = max(1, min(_MOST_CALLS, math.ceil(_ROUND_SECONDS / max(most, 1e-6))))
    is_short = most <= _LONG_SECONDS or clock() + FEWEST_ROUNDS * once <= deadline
    rounds = {name: [] if is_short else [[first]] for name, first in taken.items()}
    fewest = FEWEST_ROUNDS if is_short else 1
    for done in range(not is_short, MOST_ROUNDS):
        if done >= FEWEST_ROUNDS and all(map(_settled, rounds.values())):
            break
        if done >= fewest and clock() + per_round * once > deadline:
            break
        for name, call in calls.items():
            rounds[name].append([_time_call(call, clock) for _ in range(per_round)])
    return {name: _summary(each) for name, each in rounds.items()}


def _warm(call: Call, taken: float | None, clock: Callable[[], float]) -> float:
    """Seconds of a call that finds done what is done once; taken: of a call before."""
    if taken is None:
        taken = _time_call(call, clock)
    return taken if taken > _LONG_SECONDS else _time_call(call, clock)


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
