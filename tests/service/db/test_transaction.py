"""Changes of state go by compare-and-set, and leave events without gaps."""

import pytest

from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.core import Core
from service.domain import EventType, Outcome
from service.errors import StaleClaim, UnknownJob
from service.jobs import Jobs

FAILED = Outcome(State.FAILED, error=Failure("import.shape", "import", "no"))


@pytest.fixture
def job_id(jobs: Jobs, model: str) -> str:
    return jobs.submit(model, CompileRequest(targets=("x86-64-v3", "aarch64"))).id


def test_a_build_is_changed_only_as_it_was_read(core: Core, job_id: str) -> None:
    with core.writing() as tx:
        build = tx.job(job_id).builds[0]
        tx.change(build, State.RUNNING, fence=build.fence + 1)
        with pytest.raises(StaleClaim, match="changed meanwhile"):
            tx.change(build, State.RUNNING)


def test_an_ended_build_stays_ended(core: Core, job_id: str) -> None:
    with core.writing() as tx:
        tx.end(tx.job(job_id).builds[0], Outcome(State.CANCELLED))
    with core.writing() as tx:
        build = tx.job(job_id).builds[0]
        with pytest.raises(StaleClaim, match="cannot become"):
            tx.end(build, FAILED)
        with pytest.raises(StaleClaim):
            tx.requeue(build, "again", attempts=0)


def test_the_job_follows_its_builds_and_says_so_once(core: Core, jobs: Jobs, job_id: str) -> None:
    for index in (0, 1):
        with core.writing() as tx:
            tx.end(tx.job(job_id).builds[index], Outcome(State.CANCELLED))
        assert jobs.get(job_id).state is (State.CANCELLED if index else State.RUNNING)
    events = jobs.events(job_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count(EventType.JOB_FINISHED) == 1
    assert events[-1].type is EventType.JOB_FINISHED
    assert jobs.get(job_id).finished_at is not None


def test_what_fails_inside_changes_nothing(core: Core, jobs: Jobs, job_id: str) -> None:
    before = jobs.get(job_id), jobs.events(job_id)

    def broken() -> None:
        with core.writing() as tx:
            tx.end(tx.job(job_id).builds[0], Outcome(State.CANCELLED))
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        broken()
    assert (jobs.get(job_id), jobs.events(job_id)) == before


def test_a_job_that_is_not_there(core: Core) -> None:
    with core.reading() as tx, pytest.raises(UnknownJob):
        tx.job("nobody")


def test_a_requeued_build_has_another_fence(core: Core, jobs: Jobs, job_id: str) -> None:
    with core.writing() as tx:
        build = tx.job(job_id).builds[0]
        tx.change(build, State.RUNNING, fence=build.fence + 1, attempts=1)
    with core.writing() as tx:
        running = tx.job(job_id).builds[0]
        tx.requeue(running, "the worker is gone", attempts=1)
    build = jobs.get(job_id).builds[0]
    assert (build.state, build.fence, build.attempts) == (State.QUEUED, running.fence + 1, 1)
    assert jobs.events(job_id)[-1].data == {"reason": "the worker is gone"}
