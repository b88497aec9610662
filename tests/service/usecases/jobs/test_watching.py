import threading

import pytest

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.errors import UnknownJob


def test_an_unknown_job_is_said_to_be_unknown(jobs):
    for ask in (jobs.get, jobs.cancel, jobs.events, lambda job_id: jobs.wait(job_id, 0)):
        with pytest.raises(UnknownJob):
            ask("nonsense")


def test_waiting_ends_with_the_job_or_with_the_time(jobs, model, answer):
    job = jobs.submit(model, CompileRequest())
    assert jobs.wait(job.id, 0).state is State.QUEUED
    thread = threading.Thread(target=answer, args=(job.builds[0].id,))
    thread.start()
    assert jobs.wait(job.id, 60).state is State.SUCCEEDED
    thread.join()


def test_there_are_no_events_after_the_last(jobs, model):
    job = jobs.submit(model, CompileRequest())
    assert jobs.events(job.id, after=1) == []


def test_a_cancelled_job_stays_cancelled(jobs, model, answer, compiler):
    job = jobs.submit(model, CompileRequest(targets=("native", "x86-64-v2")))
    answer(job.builds[0].id)
    cancelled = jobs.cancel(job.id)
    assert cancelled.state is State.CANCELLED
    assert [build.state for build in cancelled.builds] == [State.SUCCEEDED, State.CANCELLED]
    assert jobs.cancel(job.id) == cancelled
    answer(job.builds[1].id)
    assert len(compiler.jobs) == 1
