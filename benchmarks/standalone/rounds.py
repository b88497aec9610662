"""Paired rounds: engines in turns in one process, on one thread, by its processor time, which busy
neighbours change less than the clock; then the median of each round's ratio.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_SAMPLE_NS = 4_000_000
_MOST_CALLS = 20_000


@dataclass(frozen=True)
class Contest:
    """Seconds of a call, by engine, of every round."""

    seconds: Mapping[str, tuple[float, ...]]

    def median(self, engine: str) -> float:
        """Seconds of a call."""
        return statistics.median(self.seconds[engine])

    def ratio(self, engine: str, peer: str) -> float:
        """Median over rounds of the engine's time by the peer's in the same round."""
        pairs = zip(self.seconds[engine], self.seconds[peer], strict=True)
        return statistics.median(one / other for one, other in pairs)


def contest(calls: Mapping[str, Callable[[], object]], rounds: int) -> Contest:
    """So many rounds; each engine's sample has as many calls as take some milliseconds."""
    counts = {name: _count(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(_spent(calls[name], counts[name]) / counts[name] / 1e9)
    return Contest({name: tuple(values) for name, values in seconds.items()})


def _count(call: Callable[[], object]) -> int:
    call()
    call()
    once = max(_spent(call, 3) // 3, 1)
    return max(1, min(_MOST_CALLS, _SAMPLE_NS // once))


def _spent(call: Callable[[], object], count: int) -> int:
    started = time.thread_time_ns()
    for _ in range(count):
        call()
    return time.thread_time_ns() - started
