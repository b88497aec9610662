"""Tells whoever follows a tenant's jobs what changes of them, by one look for all followers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from service.domain import Brief, Queue
from service.jobs import Jobs

LOOK_S = 0.5
QUEUE_EVERY = 4
"""Of so many looks at the jobs, one is at the queue too."""
MOST_BEHIND = 10_000
"""A follower that reads slower than that is given up; it lists the jobs anew."""

Update = Brief | Queue


@dataclass(eq=False)
class _Tenant:
    """The followers of one tenant's jobs, and the task that looks for them."""

    followers: set["asyncio.Queue[Update | None]"] = field(default_factory=set)
    task: asyncio.Task[None] | None = None
    queue: Queue | None = None


class Board:
    """Followers of jobs by tenant; a tenant is looked at while it has any."""

    def __init__(self, jobs_of: Callable[[str], Jobs]) -> None:
        self._jobs_of = jobs_of
        self._tenants: dict[str, _Tenant] = {}

    async def follow(self, name: str) -> AsyncIterator[Update]:
        """The queue as it stands, from which on no change is missed, then what changes, until the
        follower is too far behind; raises what a look raises.
        """
        tenant = self._tenants.setdefault(name, _Tenant())
        inbox: asyncio.Queue[Update | None] = asyncio.Queue(MOST_BEHIND)
        if tenant.queue is not None:
            inbox.put_nowait(tenant.queue)
        tenant.followers.add(inbox)
        if tenant.task is None:
            tenant.task = asyncio.create_task(self._poll(name, tenant))
        task = tenant.task
        try:
            while (update := await inbox.get()) is not None:
                yield update
            if task.done():
                task.result()
        finally:
            tenant.followers.discard(inbox)

    async def _poll(self, name: str, tenant: _Tenant) -> None:
        jobs, looks = self._jobs_of(name), 0
        try:
            snapshot, _ = await run_in_threadpool(jobs.read_changes, None)
            while tenant.followers:
                if looks % QUEUE_EVERY == 0:
                    _tell_queue(tenant, await run_in_threadpool(jobs.queue))
                await asyncio.sleep(LOOK_S)
                snapshot, briefs = await run_in_threadpool(jobs.read_changes, snapshot)
                for brief in briefs:
                    _tell(tenant, brief)
                looks += 1
        finally:
            for inbox in tenant.followers:
                _end(inbox)
            del self._tenants[name]


def _tell_queue(tenant: _Tenant, queue: Queue) -> None:
    if queue != tenant.queue:
        tenant.queue = queue
        _tell(tenant, queue)


def _tell(tenant: _Tenant, update: Update) -> None:
    for inbox in list(tenant.followers):
        try:
            inbox.put_nowait(update)
        except asyncio.QueueFull:
            tenant.followers.discard(inbox)
            _end(inbox)


def _end(inbox: "asyncio.Queue[Update | None]") -> None:
    """The follower finds what it has not read yet gone, and the end."""
    while not inbox.empty():
        inbox.get_nowait()
    inbox.put_nowait(None)
