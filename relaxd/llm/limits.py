"""Limits of what requests take before their first token, so that slow ones hold up none that
are quick.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import Request

from relaxd.errors import OverloadError
from relaxd.http.bodies import check_json, read_limited

T = TypeVar("T")


class BoundedThreads:
    """A few threads, with a limit on the requests that use them or wait."""

    def __init__(self, name: str, threads: int, most: int) -> None:
        self._name = name
        self._most = most
        self._count = 0
        self._pool = ThreadPoolExecutor(threads, f"relaxd-llm-{name}")

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work in a thread; raises OverloadError where too many wait."""
        if self._count >= self._most:
            raise OverloadError(
                f"{self._count} {self._name} requests wait already",
                hint="try again later",
                retry_after=1,
            )
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._count -= 1


class BodyBudget:
    """Bodies of at most `limit` bytes, and of `total` bytes together."""

    def __init__(self, limit: int, total: int) -> None:
        self._limit = limit
        self._total = total
        self._bytes = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, which counts for as long as the context lasts; raises BodyTooLarge,
        UnsupportedMediaType, and OverloadError where there are too many bodies.
        """
        check_json(request)
        data = bytearray()
        try:
            async for chunk in read_limited(request, self._limit, "send a shorter prompt"):
                data += chunk
                self._bytes += len(chunk)
                if self._bytes > self._total:
                    raise OverloadError(
                        "too many large requests are read", hint="try again later", retry_after=1
                    )
            yield bytes(data)
        finally:
            self._bytes -= len(data)
