import threading
from dataclasses import replace

import pytest
from sqlalchemy import event

from compiler.errors import UnknownTarget
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType
from service.errors import IdempotencyConflict, UnknownBlob, UnknownModel

ABSENT = "sha256:" + "0" * 64


def test_one_queued_build_per_target_in_the_requests_order(jobs, model, doorbell):
    job = jobs.submit(
        model, CompileRequest(targets=("x86-64-v3", "x86-64-v2")), model_name="m.onnx"
    )
    assert [(build.target, build.state) for build in job.builds] == [
        ("x86-64-v3", State.QUEUED),
        ("x86-64-v2", State.QUEUED),
    ]
    assert (job.state, job.model, job.model_name) == (State.QUEUED, model, "m.onnx")
    assert doorbell.rings == [build.id for build in job.builds]
    assert [(event.seq, event.type) for event in jobs.events(job.id)] == [(1, EventType.JOB_QUEUED)]


def test_the_request_survives_the_database(jobs, model):
    request = CompileRequest.of(
        dims={"n": "1:8@4"},
        inputs={"x": "float32[n,2*n]"},
        consts={"sr": 16000},
        shapes={"y": "[m,4]"},
    )
    assert jobs.get(jobs.submit(model, request).id).request == request


def test_unknown_blobs_and_targets_are_refused_and_leave_nothing(jobs, model):
    with pytest.raises(UnknownModel) as refused:
        jobs.submit(ABSENT, CompileRequest())
    assert refused.value.field == "model"
    with pytest.raises(UnknownBlob) as absent:
        jobs.submit(model, CompileRequest(samples=ABSENT))
    assert absent.value.field == "samples"
    with pytest.raises(UnknownTarget):
        jobs.submit(model, CompileRequest(targets=("vax",)))
    assert jobs.list() == []


def test_an_idempotency_key_finds_the_first_job(jobs, model):
    first = jobs.submit(model, CompileRequest(), "key")
    assert jobs.submit(model, CompileRequest(), "key").id == first.id
    assert jobs.submit(model, CompileRequest(), "other key").id != first.id
    with pytest.raises(IdempotencyConflict) as conflict:
        jobs.submit(model, CompileRequest.of(dims={"n": 3}), "key")
    assert conflict.value.details["job"] == first.id


def test_one_job_for_an_idempotency_key_used_by_many_at_once(jobs, model):
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(jobs.submit(model, CompileRequest(), "key").id)
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len(set(results)) == 1
    assert len(jobs.list()) == 1


def test_list_is_newest_first_and_filters_by_state(jobs, model, clock):
    ids = []
    for _ in range(3):
        clock.advance(1)
        ids.append(jobs.submit(model, CompileRequest()).id)
    jobs.cancel(ids[1])
    assert [job.id for job in jobs.list()] == ids[::-1]
    assert [job.id for job in jobs.list(limit=1)] == ids[2:]
    assert [job.id for job in jobs.list(state=State.CANCELLED)] == [ids[1]]


def test_a_submit_takes_as_many_statements_however_many_targets(core, jobs, model, database):
    statements = []

    def note(connection, cursor, statement, *rest):
        statements.append(statement.partition("(")[0].strip())

    event.listen(core.db._engine, "before_cursor_execute", note)
    jobs.submit(model, CompileRequest(targets=("x86-64-v3", "x86-64-v2")))
    event.remove(core.db._engine, "before_cursor_execute", note)
    tables = [f"INSERT INTO {table}" for table in ("jobs", "builds", "events")]
    assert [
        statement for statement in statements if statement.startswith(("INSERT", "UPDATE", "WITH"))
    ] == (tables if database == "sqlite" else ["WITH new_jobs AS"])


@pytest.mark.parametrize(
    ("name", "retained"), [("a\0b", "a\\x00b"), ("\ud800", "\\ud800"), ("\U0001f600", "\U0001f600")]
)
def test_the_job_of_a_submission_is_the_one_that_is_read(jobs, model, name, retained):
    request = CompileRequest.of(
        dims={"n": "1:64%8"}, consts={"word": name, "rate": 0.1}, targets=["x86-64-v3", "aarch64"]
    )
    job = jobs.submit(model, request, model_name=name)
    assert job == replace(jobs.get(job.id), builds=job.builds)
    assert (job.model_name, dict(job.request.consts)["word"]) == (retained, retained)
    unnoted = [replace(build, note=None, position=None) for build in jobs.get(job.id).builds]
    assert list(job.builds) == unnoted
