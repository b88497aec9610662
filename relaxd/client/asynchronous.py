"""The client for asyncio: the same calls, each in a thread of its own, and events as an async
iterator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from relaxd.client.build import Build
from relaxd.client.client import Client
from relaxd.client.job import JobEvent, JobHandle
from relaxd.client.upload import Model
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State

T = TypeVar("T")


class AsyncJob:
    """A job of a service, for asyncio; `handle` is the synchronous one."""

    def __init__(self, handle: JobHandle) -> None:
        self.handle = handle

    @property
    def id(self) -> str:
        """The job's id."""
        return self.handle.id

    @property
    def state(self) -> State:
        """The state as last seen."""
        return self.handle.state

    @property
    def results(self) -> tuple[Build, ...]:
        """The builds, typed, as last seen."""
        return self.handle.results

    async def refresh(self) -> "AsyncJob":
        """Ask the service for the job as it stands."""
        await asyncio.to_thread(self.handle.refresh)
        return self

    async def wait(self, timeout: float | None = None) -> "AsyncJob":
        """See `JobHandle.wait`; a task that is cancelled meanwhile leaves the job running."""
        await asyncio.to_thread(self.handle.wait, timeout)
        return self

    async def cancel(self) -> "AsyncJob":
        """See `JobHandle.cancel`."""
        await asyncio.to_thread(self.handle.cancel)
        return self

    async def events(self, after: int = 0, timeout: float | None = None) -> AsyncIterator[JobEvent]:
        """See `JobHandle.events`."""
        events = self.handle.events(after, timeout)
        try:
            while (event := await asyncio.to_thread(_next, events)) is not None:
                yield event
        finally:
            close: Callable[[], None] | None = getattr(events, "close", None)
            if close is not None:
                await asyncio.to_thread(close)

    async def logs(self, target: str | None = None) -> str:
        """See `JobHandle.logs`."""
        return await asyncio.to_thread(self.handle.logs, target)

    async def pull(
        self, target: str | None = None, directory: str | Path = "out", *, best: bool = False
    ) -> Path:
        """See `JobHandle.pull`."""
        return await asyncio.to_thread(self.handle.pull, target, directory, best=best)


class AsyncClient:
    """The asyncio counterpart of `relaxd.Client`; use it with `async with`."""

    def __init__(
        self, url: str | None = None, token: str | None = None, timeout: float = 30.0
    ) -> None:
        self.client = Client(url, token, timeout)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections."""
        await asyncio.to_thread(self.client.close)

    async def compile(self, model: Model, **declared: Any) -> AsyncJob:
        """See `Client.compile`."""
        return AsyncJob(await asyncio.to_thread(lambda: self.client.compile(model, **declared)))

    async def submit(self, model: Model, request: CompileRequest, **options: Any) -> AsyncJob:
        """See `Client.submit`."""
        return AsyncJob(
            await asyncio.to_thread(lambda: self.client.submit(model, request, **options))
        )

    async def inspect(self, model: Model, **declared: Any) -> dict[str, Any]:
        """See `Client.inspect`."""
        return await asyncio.to_thread(lambda: self.client.inspect(model, **declared))

    async def job(self, job_id: str) -> AsyncJob:
        """An earlier job."""
        return AsyncJob(await asyncio.to_thread(self.client.job, job_id))

    async def jobs(self, limit: int = 50, state: str | None = None) -> list[AsyncJob]:
        """The latest jobs first, of one state or of all."""
        return [AsyncJob(job) for job in await asyncio.to_thread(self.client.jobs, limit, state)]

    async def targets(self) -> list[dict[str, Any]]:
        """The targets that the service compiles for."""
        return await asyncio.to_thread(self.client.targets)

    async def pull(self, ref: str, directory: str | Path, **options: Any) -> Path:
        """See `Client.pull`."""
        return await asyncio.to_thread(lambda: self.client.pull(ref, directory, **options))


def _next(events: Iterator[T]) -> T | None:
    return next(events, None)
