"""Runs two models in turns on the same inputs: how much slower one is, and how far outputs differ.

What a neighbour takes of the processor, it takes of both: a pair of calls gives one ratio, and the
median of many pairs is that of the models. Which of a pair runs first changes with every pair.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from relaxd.contract.bundle.diff import LatencyChange, OutputChange
from relaxd.reports.statistics import fewest, median_interval

CONFIDENCE = 0.999
_CALL_SECONDS = 0.004
_MOST_PAIRS = 400
_CLOSE = 0.01
_TICK = 1e-7
"""Seconds: a thread's clock may stand still over a short call."""

Call = Callable[[], Any]


def contest(
    base: Call,
    head: Call,
    dims: Mapping[str, int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> LatencyChange:
    """Pairs of calls until the interval of their ratio is narrow or the time is up.

    clock: `time.thread_time` for models of one thread, whose processor time neighbours hardly
    change.
    """
    calls = _calls_a_turn(base, head, clock)
    pairs: list[tuple[float, float]] = []
    least = 2 * fewest(CONFIDENCE)
    deadline = clock() + seconds
    while len(pairs) < _MOST_PAIRS and (len(pairs) < least or clock() < deadline):
        first, second = (base, head) if len(pairs) % 2 == 0 else (head, base)
        first_time, second_time = _turn(first, calls, clock), _turn(second, calls, clock)
        pairs.append((first_time, second_time) if first is base else (second_time, first_time))
        if len(pairs) >= least and len(pairs) % 10 == 0 and _is_precise(pairs):
            break
    ratio, low, high = _interval(pairs)
    base_ms, head_ms = (float(np.median(side)) * 1e3 for side in zip(*pairs, strict=True))
    return LatencyChange(dict(dims), base_ms, head_ms, ratio, low, high, len(pairs))


def _interval(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    middle, low, high = median_interval([math.log(h / b) for b, h in pairs], CONFIDENCE)
    return math.exp(middle), math.exp(low), math.exp(high)


def _is_precise(pairs: list[tuple[float, float]]) -> bool:
    _, low, high = _interval(pairs)
    return high - low < 2 * _CLOSE


def _calls_a_turn(base: Call, head: Call, clock: Callable[[], float]) -> int:
    for call in (base, head):
        call()
    slowest = max(_turn(base, 2, clock), _turn(head, 2, clock))
    return max(1, min(200, math.ceil(_CALL_SECONDS / max(slowest, 1e-6))))


def _turn(call: Call, calls: int, clock: Callable[[], float]) -> float:
    """Seconds of the fastest of some calls: interruptions only ever add."""
    best = math.inf
    for _ in range(calls):
        started = clock()
        call()
        best = min(best, max(clock() - started, _TICK))
    return best


def output_changes(
    base: Mapping[str, Any], head: Mapping[str, Any], dims: Mapping[str, int]
) -> Iterator[OutputChange]:
    """How far outputs of one name and shape differ; those of another shape have no cosine."""
    for name in base.keys() & head.keys():
        base_values, head_values = (
            np.asarray(side[name]).astype(np.float64) for side in (base, head)
        )
        if base_values.shape != head_values.shape:
            yield OutputChange(name, dict(dims), math.inf, math.inf, math.nan)
        elif base_values.size:
            apart = np.abs(base_values - head_values)
            yield OutputChange(
                name,
                dict(dims),
                float(apart.max()),
                float(apart.mean()),
                _cosine(base_values.ravel(), head_values.ravel()),
                _agreement(base_values, head_values),
            )


def _cosine(base: np.ndarray, head: np.ndarray) -> float:
    lengths = float(np.linalg.norm(base) * np.linalg.norm(head))
    if lengths == 0:
        return 1.0 if np.array_equal(base, head) else 0.0
    return min(float(base @ head) / lengths, 1.0)


def _agreement(base: np.ndarray, head: np.ndarray) -> float | None:
    if base.ndim < 2 or base.shape[-1] < 2:
        return None
    return float((base.argmax(-1) == head.argmax(-1)).mean())
