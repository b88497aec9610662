"""Queued builds end at once, running ones are told, ended ones stay; equal builds go on."""

import json

import pytest
from sqlalchemy import event

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType
from service.errors import UnknownJob
from service.usecases.builds import claiming, ending


def test_each_build_by_its_state(core, jobs, model) -> None:
    job = jobs.submit(model, CompileRequest(targets=("x86-64-v2", "x86-64-v3")))
    running, queued = job.builds
    assert claiming.take(core, running.id, "worker")
    cancelled = jobs.cancel(job.id)
    assert [build.state for build in cancelled.builds] == [State.RUNNING, State.CANCELLED]
    assert [build.cancel_requested for build in cancelled.builds] == [True, False]
    assert jobs.cancel(job.id) == cancelled
    assert cancelled.state is State.RUNNING
    assert queued.id == cancelled.builds[1].id


def test_cancelling_twice_changes_nothing_more(core, jobs, model, monkeypatch) -> None:
    job = jobs.submit(model, CompileRequest())
    first = jobs.cancel(job.id)
    events = jobs.events(job.id)
    monkeypatch.setattr(core.db, "write", None)  # nor waits for what others write
    assert jobs.cancel(job.id) == first
    assert jobs.events(job.id) == events
    assert first.state is State.CANCELLED


def test_what_waits_for_an_equal_build_outlives_its_cancellation(
    core, jobs, model, doorbell
) -> None:
    one, other = (jobs.submit(model, CompileRequest()) for _ in range(2))
    claim = claiming.take(core, one.builds[0].id, "worker")
    assert claim
    assert claiming.take(core, other.builds[0].id, "worker") is None
    jobs.cancel(one.id)
    doorbell.rings.clear()
    ending.finish(core, claim, ending.CANCELLED)
    assert jobs.get(one.id).state is State.CANCELLED
    assert doorbell.rings == [other.builds[0].id]
    assert claiming.take(core, other.builds[0].id, "worker")


def test_an_unknown_job(jobs) -> None:
    with pytest.raises(UnknownJob):
        jobs.cancel("nobody")


def test_many_builds_end_in_linear_time_and_in_short_transactions(core, jobs, model):
    """Other writers wait for a transaction, and a worker that waits loses its lease."""
    targets = tuple(
        json.dumps({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": number + 1})
        for number in range(120)
    )
    job = jobs.submit(model, CompileRequest(targets=targets))
    statements: list[str] = []

    def note(connection, cursor, statement, *_):
        statements.append(statement)

    event.listen(core.db._engine, "before_cursor_execute", note)
    assert jobs.cancel(job.id).state is State.CANCELLED
    event.remove(core.db._engine, "before_cursor_execute", note)
    assert len(statements) < len(targets) + 60
    assert sum("FROM builds" in statement for statement in statements) < 20
    assert sum("INSERT INTO events" in statement for statement in statements) > 2
    reported = [event for event in jobs.events(job.id) if event.type is EventType.BUILD_FINISHED]
    assert [event.target for event in reported] == list(targets)
    assert jobs.events(job.id)[-1].type is EventType.JOB_FINISHED
