"""How many requests of one tenant do what takes long at a time, so that those of others find
the processor and threads free.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

WIDTH = 2

T = TypeVar("T")


class TenantThreads:
    """Threads apart from those of other requests, WIDTH for each tenant; who comes later waits."""

    def __init__(self) -> None:
        self._limiters: defaultdict[str, anyio.CapacityLimiter] = defaultdict(
            partial(anyio.CapacityLimiter, WIDTH)
        )

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """The result of the work, once it is the tenant's turn."""
        return await anyio.to_thread.run_sync(work, limiter=self._limiters[tenant])
