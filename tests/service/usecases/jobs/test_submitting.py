import threading
from dataclasses import replace

import pytest
from sqlalchemy import event

from compiler.errors import UnknownTarget
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType
from service.errors import IdempotencyConflict, QueueFull, UnknownBlob, UnknownModel
from service.identity import Limits
from service.usecases.store import holdings
from service.usecases.store.holdings import Unheld
from service.usecases.store.reserving import Reservation
from service.usecases.tenants import tenants

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


@pytest.fixture
def sent(core):
    """A new blob that comes with a tenant's submission, beside one that it held before."""
    tenants.create(core, "a")
    holdings.view(core, "a").blobs.put(b"held before")
    unheld = Unheld("a", Reservation(core, "a"))
    blobs = holdings.draw_on(unheld.reserved, holdings.view(core, "a").blobs, unheld)
    assert blobs.put(b"held before").size == 11
    model = blobs.put(b"a new model").digest
    assert blobs.put(b"a new model").digest == model
    assert unheld.sizes == {model: 11}
    return unheld


def test_what_comes_with_a_submission_is_held_in_the_write_of_its_job(core, jobs, sent):
    (model,) = sent.sizes
    assert not holdings.is_held(core, "a", model)
    writes = []
    event.listen(core.db._writer, "commit", lambda connection: writes.append(connection))
    job = jobs.of("a").with_blobs(sent).submit(model, CompileRequest())
    assert len(writes) == 1
    assert jobs.of("a").get(job.id).model == model
    assert holdings.is_held(core, "a", model)
    assert tenants.get(core, "a").stored_bytes == 22


def test_what_comes_with_a_refused_submission_is_not_held(core, jobs, sent):
    (model,) = sent.sizes
    tenants.change(core, "a", limits=Limits(queued=0))
    with pytest.raises(QueueFull):
        jobs.of("a").with_blobs(sent).submit(model, CompileRequest())
    assert not holdings.is_held(core, "a", model)
    assert tenants.get(core, "a").stored_bytes == 11


def test_a_blob_that_another_request_holds_meanwhile_is_held_once(core, jobs, sent, monkeypatch):
    (model,) = sent.sizes
    holdings.view(core, "a").blobs.put(b"a new model")
    find, calls = holdings._held_of, []

    def find_too_early(tx, tenant, digests):
        calls.append(digests)
        return set() if len(calls) == 1 else find(tx, tenant, digests)

    monkeypatch.setattr(holdings, "_held_of", find_too_early)
    job = jobs.of("a").with_blobs(sent).submit(model, CompileRequest(), "key")
    assert [each.id for each in jobs.of("a").list()] == [job.id]
    assert tenants.get(core, "a").stored_bytes == 22
