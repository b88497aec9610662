"""Threads for requests, apart for each tenant: however many requests of one wait for threads or for
the database, those of others do not wait behind them.
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
"""Threads for each tenant; who comes later waits."""
HEAVY = 2
"""The width for what keeps the processor busy."""

T = TypeVar("T")


_LIMITERS: RunVar[dict[tuple[str, int], anyio.CapacityLimiter]] = RunVar("tenants' limiters")


async def run_in_thread(work: Callable[..., T], *arguments: Any, width: int = WIDTH) -> T:
    """The result of the work, once one of `width` threads of the tenant that is served is free."""
    limiters = _LIMITERS.get({})
    _LIMITERS.set(limiters)
    limiter = limiters.setdefault((TENANT.get(), width), anyio.CapacityLimiter(width))
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
