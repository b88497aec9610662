"""A load in an open loop: requests go out by the clock, however long the answers take."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from benchmarks.scale.client import Broken, Client

Request = Callable[[Client, int], Coroutine[Any, Any, None]]


@dataclass
class Times:
    """Milliseconds of each request: from when it was due, and from when it was sent."""

    due: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Percentiles, and how late the load itself was."""
        late = [due - sent for due, sent in zip(self.due, self.sent, strict=True)]
        return {
            "requests": len(self.due),
            "errors": len(self.errors),
            **({"first_error": self.errors[0]} if self.errors else {}),
            "ms_from_due": percentiles(self.due),
            "ms_from_sent": percentiles(self.sent),
            "ms_late": percentiles(late),
        }


def percentiles(values: list[float], digits: int = 1) -> dict[str, float]:
    """The usual ones, rounded; none of no values."""
    ordered = sorted(values)
    index = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        name: round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], digits)
        for name, part in index.items()
        if ordered
    }


async def _timed(client: Client, request: Request, number: int, due: float) -> Any:
    sent = time.perf_counter()
    await request(client, number)
    ended = time.perf_counter()
    return (ended - due) * 1000, (ended - sent) * 1000


async def open_loop(request: Request, count: int, per_s: float) -> Times:
    """`count` requests at `per_s` a second."""
    times = Times()
    async with Client() as client:

        async def lhs(number: int, due: float) -> None:
            try:
                from_due, from_sent = await _timed(client, request, number, due)
            except (Broken, OSError) as error:
                times.errors.append(repr(error))
                return
            times.due.append(from_due)
            times.sent.append(from_sent)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                due = began + number / per_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(lhs(number, due))
    return times


async def one_by_one(request: Request, count: int) -> Times:
    """Each request after the last one's answer: what serving takes without a queue."""
    times = Times()
    async with Client() as client:
        for number in range(count):
            from_due, from_sent = await _timed(client, request, number, time.perf_counter())
            times.due.append(from_due)
            times.sent.append(from_sent)
    return times
