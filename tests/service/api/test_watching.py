"""However many requests wait, one task asks the database for all of them."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.api.watching import POLL_S, Watch, log_lines
from service.domain import Event, EventType, Job, Kind, Mark
from service.errors import DatabaseUnavailable, UnknownJob

NOW = datetime.now(UTC)
JOB = Job("j", Kind.COMPILE, State.QUEUED, NOW, "sha256:", CompileRequest(), ())


class Fake:
    """Jobs that end when a test says so."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.job = JOB
        self.history: list[Event] = []
        self.error: Exception | None = None

    def marks(self, job_ids: list[str]) -> dict[str, Mark]:
        self.asked["marks"] += 1
        if self.error:
            raise self.error
        mark = Mark(self.job.state, len(self.history))
        return {job_id: mark for job_id in job_ids if job_id == "j"}

    def get(self, job_id: str) -> Job:
        self.asked["get"] += 1
        return self.job

    def events(self, job_id: str, after: int, limit: int) -> list[Event]:
        return self.history[after : after + limit]

    def tell(self, kind: EventType = EventType.BUILD_LOG) -> None:
        self.history.append(Event(len(self.history) + 1, NOW, kind, None, {}))

    def end(self) -> None:
        self.job = replace(JOB, state=State.SUCCEEDED)
        self.tell(EventType.JOB_FINISHED)


@pytest.fixture
def jobs() -> Fake:
    return Fake()


def watch_over(jobs: Any) -> Watch:
    return Watch(jobs)


def test_many_requests_wait_by_one_query(jobs: Fake) -> None:
    async def story() -> None:
        watch = watch_over(jobs)
        waiting = [asyncio.create_task(watch.wait_for(JOB, 60)) for _ in range(300)]
        while jobs.asked["marks"] < 2:
            await asyncio.sleep(POLL_S)
        assert jobs.asked["get"] == 0
        jobs.end()
        assert {job.state for job in await asyncio.gather(*waiting)} == {State.SUCCEEDED}
        assert jobs.asked["get"] == 1, "the job is read once for all that its end has woken"
        while watch._polling is not None:
            await asyncio.sleep(POLL_S)

    asyncio.run(story())


def test_a_wait_that_is_up_and_one_that_has_nothing_to_wait_for(jobs: Fake) -> None:
    async def story() -> None:
        watch = watch_over(jobs)
        assert (await watch.wait_for(JOB, 0.01)).state is State.QUEUED
        assert await watch.wait_for(replace(JOB, state=State.FAILED), 60)
        assert await watch.wait_for(JOB, 0) is JOB

    asyncio.run(story())


def test_following_gives_every_event_once_and_ends(jobs: Fake) -> None:
    async def story() -> list[int]:
        watch = watch_over(jobs)
        for _ in range(2500):
            jobs.tell()
        seen = []
        async for event in watch.follow("j", 10):
            seen.append(event.seq)
            if event.seq == 2500:
                jobs.tell()
                jobs.end()
        return seen

    assert asyncio.run(story()) == list(range(11, 2503))


def test_what_goes_wrong_reaches_everyone_who_waits(jobs: Fake) -> None:
    async def story() -> None:
        watch = watch_over(jobs)
        with pytest.raises(UnknownJob):
            await watch.wait_for(replace(JOB, id="gone"), 60)
        jobs.error = DatabaseUnavailable("away")
        waiting = [asyncio.create_task(watch.wait_for(JOB, 60)) for _ in range(3)]
        for task in waiting:
            with pytest.raises(DatabaseUnavailable):
                await task
        jobs.error = None
        jobs.end()
        assert (await watch.wait_for(JOB, 60)).state is State.SUCCEEDED

    asyncio.run(story())


def test_a_wait_that_begins_during_a_query_is_not_answered_by_it(jobs: Fake) -> None:
    begun = threading.Event()

    class Slow(Fake):
        def marks(self, job_ids: list[str]) -> dict[str, Mark]:
            begun.wait(10)
            return {job_id: Mark(State.SUCCEEDED, 1) for job_id in job_ids}

    async def run() -> list[Job]:
        watch = watch_over(Slow())
        first = asyncio.create_task(watch.wait_for(JOB, 10))
        await asyncio.sleep(0)
        await asyncio.sleep(POLL_S)
        second = asyncio.create_task(watch.wait_for(replace(JOB, id="k"), 10))
        await asyncio.sleep(POLL_S)
        begun.set()
        return [await first, await second]

    assert len(asyncio.run(run())) == 2


def test_a_log_is_read_page_by_page_up_to_where_it_was(
    jobs: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.watching.EVENTS", 4)
    for _ in range(10):
        jobs.tell()
    log: Any = jobs
    pages = log_lines(log, "j", None)
    jobs.tell()
    assert [page.count("\n") for page in pages] == [4, 4, 2]


def test_the_log_of_a_job_without_events_is_empty(jobs: Fake) -> None:
    log: Any = jobs
    assert list(log_lines(log, "j", None)) == []
