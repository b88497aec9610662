"""Turns of tenants at the event loop: however many requests of one are ready, a step of another's
does not wait behind them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from service.db.turns import TENANT


class LoopTurns:
    """Runs coroutines of one event loop step by step, a step being what one does without waiting:
    in each iteration of the loop one step of each tenant, its own in the order in which they are
    ready.
    """

    def __init__(self) -> None:
        self._ready: dict[str, deque[asyncio.Future[None]]] = {}
        self._had_turn: set[str] = set()
        self._is_scheduled = False

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Await the work in turns, on behalf of TENANT."""
        await _Stepped(work, partial(self._take, TENANT.get()))

    def _take(self, tenant: str) -> Generator[Any, None, None]:
        if tenant in self._had_turn:
            turn = asyncio.get_running_loop().create_future()
            self._ready.setdefault(tenant, deque()).append(turn)
            yield from turn
        else:
            self._had_turn.add(tenant)
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._is_scheduled = False
        self._had_turn.clear()
        for tenant in list(self._ready):
            ready = self._ready[tenant]
            turn = ready.popleft()
            if not ready:
                del self._ready[tenant]
            self._had_turn.add(tenant)
            if not turn.done():  # else the request was cancelled
                turn.set_result(None)
        if self._had_turn:
            self._schedule()


class _Stepped:
    """Awaits a coroutine, and `take()` before each of its steps."""

    def __init__(
        self, work: Coroutine[Any, Any, None], take: Callable[[], Generator[Any, None, None]]
    ) -> None:
        self._work, self._take = work, take

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                if error is None:  # what is cancelled or closed does not wait
                    yield from self._take()
            except BaseException as raised:
                error = raised
            try:
                awaited = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return
            answer, error = None, None
            try:
                answer = yield awaited
            except BaseException as raised:
                error = raised
