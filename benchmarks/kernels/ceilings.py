"""What one thread of this machine reaches at most: multiplications a second by arithmetic, and
bytes a second that it reads from a buffer, by the buffer's size.
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
_TRIES, _SECONDS = 9, 0.004

Level = str
ARITHMETIC, MEMORY = "arithmetic", "memory"


@dataclass(frozen=True)
class Bandwidth:
    """Bytes of buffers from the smallest to the largest, and the GB/s at which each is read."""

    bytes: tuple[int, ...]
    gb_s: tuple[float, ...]

    def at(self, size: int) -> float:
        """GB/s of a buffer of any size, between those measured by the logarithm of the size."""
        place = bisect_left(self.bytes, size)
        if place in (0, len(self.bytes)):
            return self.gb_s[min(place, len(self.bytes) - 1)]
        low, high = self.bytes[place - 1], self.bytes[place]
        part = math.log(size / low) / math.log(high / low)
        return self.gb_s[place - 1] ** (1 - part) * self.gb_s[place] ** part

    def to_json(self) -> list[dict[str, Any]]:
        """A mapping for each size."""
        pairs = zip(self.bytes, self.gb_s, strict=True)
        return [{"bytes": size, "gb_s": rate} for size, rate in pairs]

    @classmethod
    def from_json(cls, found: Sequence[dict[str, Any]]) -> Bandwidth:
        """Of `to_json`."""
        return cls(*(tuple(one[name] for one in found) for name in ("bytes", "gb_s")))


def level_of(size: int, caches: Caches) -> Level:
    """The nearest cache that can hold `size` bytes, or memory."""
    levels = (("L1", caches.l1), ("L2", caches.l2), ("L3", caches.l3))
    return next((name for name, held in levels if size <= held), MEMORY)


def places(caches: Caches) -> dict[Level, int]:
    """For each cache that there is, and for memory, a size that it alone delivers: midway on a
    logarithmic axis between what the cache before it holds and what it holds itself, half of the
    first cache, and four times what the last one holds.
    """
    held = {"L1": caches.l1, "L2": caches.l2, "L3": caches.l3}
    sizes, before = {}, 0
    for name, size in held.items():
        if size:
            sizes[name] = math.isqrt(before * size) if before else size // 2
            before = size
    return sizes | {MEMORY: _BEYOND * before}


def measured_bandwidth(read: Callable[[int, int], int], caches: Caches) -> Bandwidth:
    """The best of a few tries at each power of two; read: reads so many bytes so many times, and
    returns the bytes of one time.
    """
    most = _BEYOND * max(caches.l1, caches.l2, caches.l3)
    sizes = [_SMALLEST << power for power in range((most // _SMALLEST).bit_length())]
    found = [_best(read, size) for size in sizes]
    return Bandwidth(tuple(size for size, _ in found), tuple(rate for _, rate in found))


def _best(read: Callable[[int, int], int], size: int) -> tuple[int, float]:
    once = _seconds(read, size, 1)
    times = max(int(_SECONDS / max(once, 1e-9)), 1)
    whole = read(size, times)
    return whole, max(whole * times / 1e9 / _seconds(read, size, times) for _ in range(_TRIES))


def _seconds(read: Callable[[int, int], int], size: int, times: int) -> float:
    read(size, 1)
    began = time.thread_time()
    read(size, times)
    return time.thread_time() - began
