"""The ceilings of one thread of this machine: multiplications a second by arithmetic, and bytes a
second that it reads from a buffer, by the buffer's size.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.targets.caches import Caches

_SMALLEST, _BEYOND = 4 << 10, 4
"""The smallest buffer that is read in bytes, and the largest as a multiple of the last cache."""
_TRIES, _SECONDS = 9, 0.002

Read = Callable[[int, int], int]
"""Reads so many bytes so many times, and returns the bytes of one time."""

Level = str
ARITHMETIC, MEMORY = "arithmetic", "memory"


@dataclass(frozen=True)
class Bandwidth:
    """Bytes of buffers from the smallest to the largest, and the GB/s at which each is read."""

    bytes: tuple[int, ...]
    gb_s: tuple[float, ...]

    def rate_at(self, size: int) -> float:
        """GB/s of a buffer of any size, between those measured by the logarithm of the size."""
        index = bisect_left(self.bytes, size)
        if index in (0, len(self.bytes)):
            return self.gb_s[min(index, len(self.bytes) - 1)]
        low, high = self.bytes[index - 1], self.bytes[index]
        part = math.log(size / low) / math.log(high / low)
        return self.gb_s[index - 1] ** (1 - part) * self.gb_s[index] ** part

    def to_json(self) -> list[dict[str, Any]]:
        """A mapping for each size."""
        pairs = zip(self.bytes, self.gb_s, strict=True)
        return [{"bytes": size, "gb_s": rate} for size, rate in pairs]

    def best_of(self, rhs: Bandwidth) -> Bandwidth:
        """The greater rate at each size, of two that have the same sizes."""
        return Bandwidth(self.bytes, tuple(map(max, self.gb_s, rhs.gb_s)))

    @classmethod
    def from_json(cls, points: Sequence[dict[str, Any]]) -> Bandwidth:
        """The inverse of `to_json`."""
        return cls(*(tuple(one[name] for one in points) for name in ("bytes", "gb_s")))


def largest(caches: Caches) -> int:
    """Bytes of the largest buffer that is read: what is larger comes from memory alike."""
    return _BEYOND * max(caches.l1, caches.l2, caches.l3)


def level_of(size: int, caches: Caches) -> Level:
    """The nearest cache that can hold `size` bytes, or memory."""
    levels = (("L1", caches.l1), ("L2", caches.l2), ("L3", caches.l3))
    return next((name for name, capacity in levels if size <= capacity), MEMORY)


def sizes_by_level(caches: Caches) -> dict[Level, int]:
    """For each cache that there is, and for memory, a size that is read from it: half of the first
    cache, the geometric mean of two neighbours' capacities, and four times the last one's.
    """
    capacities = {"L1": caches.l1, "L2": caches.l2, "L3": caches.l3}
    sizes, before = {}, 0
    for name, size in capacities.items():
        if size:
            sizes[name] = math.isqrt(before * size) if before else size // 2
            before = size
    return sizes | {MEMORY: _BEYOND * before}


def measure_bandwidth(reads: Sequence[Read], caches: Caches) -> Bandwidth:
    """The best of a few tries at each power of two."""
    sizes = [_SMALLEST << power for power in range((largest(caches) // _SMALLEST).bit_length())]
    meters = [meter(reads, size) for size in sizes]
    rates = [max(measure() for _ in range(_TRIES)) for measure in meters]
    return Bandwidth(tuple(sizes), tuple(rates))


def meter(reads: Sequence[Read], size: int) -> Callable[[], float]:
    """Measures the GB/s at which a buffer of so many bytes is read, by the best of the loops, for
    some milliseconds at each call.
    """

    def measure() -> float:
        return max(_rate(read, size) for read in reads)

    return measure


def _rate(read: Read, size: int) -> float:
    """GB/s of one try, after a run that loads the buffer into caches and determines the repeats."""
    read(size, 1)
    once = _seconds(read, size, 1)[1]
    total, taken = _seconds(read, size, max(int(_SECONDS / max(once, 1e-9)), 1))
    return total / 1e9 / taken


def _seconds(read: Read, size: int, times: int) -> tuple[int, float]:
    """Bytes of one time, and its seconds."""
    began = time.thread_time()
    total = read(size, times)
    return total, (time.thread_time() - began) / times
