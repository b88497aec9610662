"""Threads for requests, apart for each tenant: however many requests of one wait for threads or for
the database, those of others do not wait behind them, and share the interpreter with few of them.
"""

from collections.abc import Callable
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from fastapi.routing import APIRoute

from service.db.turns import TENANT

WIDTH = 40
"""Threads for a tenant that is served alone; who comes later waits."""
SHARED = 2
"""Threads for each of several tenants: every busy thread holds up all others each time that they
wait for the interpreter's lock, and 9 ms of processor time take as many times longer. Beside a
tenant with 16 connections, the median of a submit was 127 ms with four and 101 with two.
"""
RECENT_S = 10.0
"""How long a tenant counts as served beyond its last request."""
HEAVY = 2
"""The width for what keeps the processor or the disk busy for long, apart from what is short."""

LARGE = 64 << 20
"""Bytes that keep the disk busy for long: some 0.2 s."""

T = TypeVar("T")


def width_for(size: int) -> int:
    """How many threads of a tenant may store blobs of that size at a time."""
    return HEAVY if size > LARGE else WIDTH


class _Shares:
    """The limiters of all tenants, by tenant and width, and when each tenant last had a request."""

    def __init__(self) -> None:
        self._limiters: dict[tuple[str, int], anyio.CapacityLimiter] = {}
        self._served: dict[str, float] = {}

    def limiter(self, tenant: str, width: int) -> anyio.CapacityLimiter:
        """The tenant's, at the width that the other tenants of the last seconds leave it."""
        now = anyio.current_time()
        if tenant:
            self._served.pop(tenant, None)
            self._served[tenant] = now  # the dict is in the order of these times
        for other, last in list(self._served.items()):
            if now - last <= RECENT_S:
                break
            del self._served[other]
        limiter = self._limiters.get((tenant, width))
        if limiter is None:
            limiter = self._limiters[tenant, width] = anyio.CapacityLimiter(width)
        limiter.total_tokens = width if len(self._served) <= 1 else min(width, SHARED)
        return limiter


_SHARES: RunVar[_Shares] = RunVar("tenants' shares of threads")


async def run_in_thread(work: Callable[..., T], *arguments: Any, width: int = WIDTH) -> T:
    """The result of the work, once one of `width` threads of the tenant that is served is free, or
    of SHARED where there are others.
    """
    shares = _SHARES.get(None)
    if shares is None:
        shares = _Shares()
        _SHARES.set(shares)
    limiter = shares.limiter(TENANT.get(), width)
    return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)


class TenantRoute(APIRoute):
    """A route whose endpoint, where it is a plain function, gets a thread of the tenant's."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not iscoroutinefunction(endpoint):
            endpoint = _in_thread(endpoint)
        super().__init__(path, endpoint, **options)


def _in_thread(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(endpoint)
    async def call(**arguments: Any) -> Any:
        return await run_in_thread(partial(endpoint, **arguments))

    return call
