"""Waiting without holding a thread: jobs until they end, events as they come."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.concurrency import run_in_threadpool

from service.api.wire import EventOut
from service.domain import Event, Job, Mark
from service.errors import UnknownJob
from service.jobs import Jobs

POLL_S = 0.1
EVENTS = 1000
"""Events that are read at a time."""


@dataclass(frozen=True, eq=False)
class _Waiter:
    """A request that waits until `enough` holds of its job."""

    enough: Callable[[Mark], bool]
    woken: asyncio.Future[Mark]


class Watch:
    """Wakes the requests that wait for jobs. However many wait, one task asks the database how far
    their jobs are; it runs while there are any.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._waiting: dict[str, set[_Waiter]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._loading: dict[str, asyncio.Task[Job]] = {}

    async def wait_for(self, job: Job, seconds: float) -> Job:
        """The job once it has ended, or as it stands after `seconds`."""
        if job.state.terminal or seconds <= 0:
            return job
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._until(job.id, lambda mark: mark.state.terminal)
        return await self._load(job.id)

    async def follow(self, job_id: str, after: int) -> AsyncIterator[Event]:
        """Events with `seq` above `after`, past and future, until the job has ended and all are
        sent.
        """
        terminal = False
        while not terminal:
            terminal = (await self._until(job_id, partial(_is_beyond, after))).state.terminal
            while events := await run_in_threadpool(self._jobs.events, job_id, after, EVENTS):
                for event in events:
                    after = event.seq
                    yield event

    async def _until(self, job_id: str, enough: Callable[[Mark], bool]) -> Mark:
        waiter = _Waiter(enough, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(job_id, set()).add(waiter)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            return await waiter.woken
        finally:
            self._forget(job_id, waiter)

    def _forget(self, job_id: str, waiter: _Waiter) -> None:
        self._waiting[job_id].discard(waiter)
        if not self._waiting[job_id]:
            del self._waiting[job_id]

    async def _poll(self) -> None:
        try:
            while self._waiting:
                asked = list(self._waiting)
                self._wake(asked, await run_in_threadpool(self._jobs.marks, asked))
                await asyncio.sleep(POLL_S)
        except Exception as error:
            for waiter in [waiter for waiters in self._waiting.values() for waiter in waiters]:
                _fail(waiter, error)
        finally:
            self._polling = None

    def _wake(self, asked: Sequence[str], marks: Mapping[str, Mark]) -> None:
        for job_id in asked:
            for waiter in self._waiting.get(job_id, ()):
                if (mark := marks.get(job_id)) is None:
                    _fail(waiter, UnknownJob(job_id))
                elif waiter.enough(mark) and not waiter.woken.done():
                    waiter.woken.set_result(mark)

    async def _load(self, job_id: str) -> Job:
        """The job, read once for all requests that its end has woken."""
        if job_id not in self._loading:
            task = asyncio.create_task(run_in_threadpool(self._jobs.get, job_id))
            task.add_done_callback(lambda _: self._loading.pop(job_id, None))
            self._loading[job_id] = task
        return await asyncio.shield(self._loading[job_id])


def _is_beyond(after: int, mark: Mark) -> bool:
    return mark.seq > after or mark.state.terminal


def _fail(waiter: _Waiter, error: Exception) -> None:
    if not waiter.woken.done():
        waiter.woken.set_exception(error)


async def as_sse(events: AsyncIterator[Event]) -> AsyncIterator[dict[str, str]]:
    """Each event as a server-sent event whose data is the EventOut document."""
    async for event in events:
        yield {
            "id": str(event.seq),
            "event": event.type.value,
            "data": EventOut.of(event).model_dump_json(),
        }


def log_lines(jobs: Jobs, job_id: str, target: str | None) -> Iterator[str]:
    """Yield a job's log as text for people, EVENTS events at a time: time, target
    and sentence. Raises UnknownJob at once.
    """
    last = jobs.marks([job_id])
    first = jobs.events(job_id, 0, EVENTS)
    return _log_lines(jobs, job_id, target, first, last[job_id].seq if last else 0)


def _log_lines(
    jobs: Jobs, job_id: str, target: str | None, events: Sequence[Event], last: int
) -> Iterator[str]:
    while events:
        yield "".join(
            f"{event.time:%H:%M:%S} {event.target or 'job':<12} {_sentence(event)}\n"
            for event in events
            if event.seq <= last and (target is None or event.target in (None, target))
        )
        seq = events[-1].seq
        # A build that goes on writing does not keep the answer from its end.
        events = jobs.events(job_id, seq, EVENTS) if seq < last else ()


def _sentence(event: Event) -> str:
    match event.data:
        case {"line": line}:
            return f"  {line}"
        case {"stage": stage, "message": message}:
            return f"{stage}: {message}"
        case {"stage": stage}:
            return str(stage)
        case {"state": state, "error": {"message": message}}:
            return f"{state}: {message}"
        case {"state": state, **rest}:
            return f"{state}, from the cache" if rest.get("cached") else str(state)
        case {"worker": worker, "attempt": attempt}:
            return f"started on {worker}" + (f", attempt {attempt}" if attempt > 1 else "")
        case {"reason": reason}:
            return f"queued: {reason}"
    return event.type.value.replace(".", " ") + (f" {json.dumps(event.data)}" if event.data else "")
