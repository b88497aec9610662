"""Waiting without holding a thread: jobs until they end, events as they come."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from relaxd.contract.states import State
from service.api.wire import EventOut
from service.domain import Event, Job
from service.jobs import Jobs

SHORTEST = 0.05
LONGEST = 0.5


async def ended(jobs: Jobs, job: Job, seconds: float) -> Job:
    """The job once it has ended, or as it stands after `seconds`."""
    deadline, pause = time.monotonic() + seconds, SHORTEST
    while not job.state.terminal and (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST)
        job = await run_in_threadpool(jobs.get, job.id)
    return job


async def follow(jobs: Jobs, job_id: str, after: int) -> AsyncIterator[Event]:
    """Events with `seq` above `after`, past and future, until the job has ended and
    all are sent.
    """
    pause = SHORTEST
    while True:
        # The state is read first: whatever happened before the job ended is then among the events.
        state: State = (await run_in_threadpool(jobs.get, job_id)).state
        events = await run_in_threadpool(jobs.events, job_id, after)
        for event in events:
            after = event.seq
            yield event
        if state.terminal:
            return
        pause = SHORTEST if events else min(pause * 1.5, LONGEST)
        await asyncio.sleep(pause)


async def as_sse(events: AsyncIterator[Event]) -> AsyncIterator[dict[str, str]]:
    """Each event as a server-sent event whose data is the EventOut document."""
    async for event in events:
        yield {
            "id": str(event.seq),
            "event": event.type.value,
            "data": EventOut.of(event).model_dump_json(),
        }


def log_text(events: list[Event], target: str | None) -> str:
    """Events as lines for people: time, target and text."""
    chosen = [event for event in events if target is None or event.target in (None, target)]
    return "".join(
        f"{event.time:%H:%M:%S} {event.target or 'job':<12} {_sentence(event)}\n"
        for event in chosen
    )


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
