"""Submits in an open loop against API processes that come and go, each repeated until it is
accepted.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.scale.client import Answer, Broken, Client, Message
from benchmarks.scale.load import percentiles

PAUSE_S = 0.1
"""Between a submit that was not accepted and the next attempt."""
GIVE_UP_S = 120.0
RECENT = 300
"""An equal job repeats one of so many that were submitted last."""

Document = dict[str, Any]


@dataclass
class Submits:
    """The load. urls: of the API processes that take requests now. body: the request of a number
    that no other request has. new_per_s: how many of the submits have no equal before them.

    due, ms: when each accepted submit was due (seconds since the start), and how long after that
    it was accepted. jobs: ids of accepted jobs. answers: by status, `lost` connections, and the
    reasons for those. given_up: what was not accepted within GIVE_UP_S. surprises: answers that no
    fault explains.
    """

    urls: list[str]
    body: Callable[[int], Document]
    new_per_s: float
    seed: int
    due: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    given_up: int = 0
    began: float = 0.0
    late_ms: list[float] = field(default_factory=list)

    async def run(self, per_s: float, seconds: float) -> None:
        """Submit for so long, and wait until every submit is accepted."""
        draw, newest = random.Random(self.seed), 0
        self.began = time.perf_counter()
        async with Client(timeout_s=60.0) as client, asyncio.TaskGroup() as group:
            for number in range(int(per_s * seconds)):
                due = number / per_s
                await asyncio.sleep(max(0.0, due - self.elapsed))
                self.late_ms.append((self.elapsed - due) * 1000)
                if is_new := draw.random() < self.new_per_s / per_s:
                    newest += 1
                key = newest if is_new else draw.randint(max(0, newest - RECENT), newest)
                group.create_task(self._submit(client, number, due, self.body(key)))

    @property
    def elapsed(self) -> float:
        """Seconds since the start; 0 before it."""
        return time.perf_counter() - self.began if self.began else 0.0

    async def _submit(self, client: Client, number: int, due: float, body: Document) -> None:
        headers = (("Idempotency-Key", f"submit-{number}"),)
        attempt = number
        while self.elapsed < due + GIVE_UP_S:
            url = self.urls[attempt % len(self.urls)]
            answer = await self._ask(
                client, Message("POST", f"{url}/v1/jobs", body, headers=headers)
            )
            if answer is not None and answer.status < 300:
                self.jobs.append(answer.json()["id"])
                self.due.append(due)
                self.ms.append((self.elapsed - due) * 1000)
                return
            attempt += 1
            await asyncio.sleep(PAUSE_S)
        self.given_up += 1

    async def _ask(self, client: Client, message: Message) -> Answer | None:
        try:
            answer = await client.ask(message)
        except (Broken, OSError) as error:  # TimeoutError is one
            self.answers["lost"] += 1
            self.reasons[repr(error)[:80]] += 1
            return None
        self.answers[str(answer.status)] += 1
        if answer.status >= 300 and answer.status != 503:
            self.surprises.append(f"{answer.status}: {answer.body[:300]!r}")
        return answer

    def latencies(self, first: float, last: float) -> dict[str, float]:
        """Percentiles in milliseconds of the submits that were due within those seconds."""
        return percentiles(
            [ms for due, ms in zip(self.due, self.ms, strict=True) if first <= due < last]
        )
