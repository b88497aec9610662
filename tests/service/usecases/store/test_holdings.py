from dataclasses import replace

import pytest

from artifacts.errors import BlobNotFound
from compiler.isolation.messages import CompileJob
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.errors import QuotaExceeded, TooManyUploads
from service.identity import DEFAULT, Limits
from service.usecases.builds import claiming
from service.usecases.store import collecting, holdings
from service.usecases.store.reserving import Uploads
from service.usecases.tenants import tenants
from tests.service.fakes import mismatch


def blobs_of(core, tenant):
    return holdings.view(core, tenant).blobs


@pytest.fixture
def two(core):
    for name in ("a", "b"):
        tenants.create(core, name)


@pytest.fixture
def sharing(core, two):
    for name in ("a", "b"):
        tenants.change(core, name, shares_cache=True)


def submit_job(core, jobs, tenant, content=b"a model"):
    model = blobs_of(core, tenant).put(content).digest
    return jobs.of(tenant).submit(model, CompileRequest()).builds[0]


def store_array(core, tenant):
    return tenants.get(core, tenant).stored_bytes


@pytest.mark.usefixtures("two")
def test_a_blob_is_there_for_whoever_put_it_and_counts_for_each(core):
    digest = blobs_of(core, "a").put(b"bytes").digest
    other = blobs_of(core, "b")
    assert not other.has(digest)
    assert not other.touch(digest)
    for read in (other.size, other.read, other.open):
        with pytest.raises(BlobNotFound):
            read(digest)
    assert not blobs_of(core, DEFAULT).has(digest)
    assert other.put(b"bytes").digest == digest
    assert other.read(digest) == b"bytes"
    other.put(b"bytes")
    assert [store_array(core, name) for name in ("a", "b", DEFAULT)] == [5, 5, 0]


@pytest.mark.usefixtures("two")
def test_a_quota_lets_nothing_through_that_exceeds_it(core):
    tenants.change(core, "a", limits=Limits(stored_bytes=10))
    blobs = blobs_of(core, "a")
    retained = blobs.put(b"8 bytes.")
    with pytest.raises(QuotaExceeded):
        blobs.put(b"three")
    for expected in (None, retained.digest):
        assert blobs.put(b"8 bytes.", expected) == retained, "what it has takes no room"
    assert store_array(core, "a") == 8


@pytest.mark.usefixtures("two")
def test_a_refusal_for_lack_of_room_takes_no_turn_at_the_database(core, monkeypatch):
    tenants.change(core, "a", limits=Limits(stored_bytes=10))
    blobs_of(core, "a").put(b"8 bytes.")
    monkeypatch.setattr(core.db, "write", None)
    with pytest.raises(QuotaExceeded):
        blobs_of(core, "a").put(b"three")
    with pytest.raises(QuotaExceeded):
        Uploads(core).reservation("a", "upload").begin(3)


@pytest.mark.usefixtures("two")
def test_a_refusal_for_too_many_uploads_takes_none_either(core, monkeypatch):
    settings = core.settings.model_copy(update={"max_uploads": 2})
    uploads = Uploads(replace(core, settings=settings))
    for name in ("first", "second"):
        uploads.reservation("a", name).begin(1)
    uploads.reservation("b", "another's").begin(1)
    monkeypatch.setattr(core.db, "write", None)
    with pytest.raises(TooManyUploads):
        uploads.reservation("a", "third").begin(1)


@pytest.mark.usefixtures("two")
def test_what_a_collection_removes_no_longer_counts(core, clock, settings):
    import time

    clock.now = time.time()
    digest = blobs_of(core, "a").put(b"forgotten").digest
    clock.advance(settings.grace_s + 60)
    collecting.run(core)
    assert not core.store.blobs.has(digest)
    assert store_array(core, "a") == 0
    assert not holdings.is_held(core, "a", digest)


def test_making_the_second_tenant_leaves_the_first_all_it_had(core):
    content = [core.store.blobs.put(bytes([number])).digest for number in range(5)]
    tenants.create(core, "a")
    late = core.store.blobs.put(b"late").digest
    assert all(blobs_of(core, DEFAULT).has(digest) for digest in content)
    assert not blobs_of(core, DEFAULT).has(late)
    assert not blobs_of(core, "a").has(content[0])


@pytest.mark.usefixtures("two")
def test_equal_builds_of_tenants_that_do_not_share_run_beside_each_other(core, jobs):
    claims = [
        claiming.take(core, submit_job(core, jobs, name).id, "worker")
        for name in ("a", "b", DEFAULT)
    ]
    assert len({claim.flight_key for claim in claims}) == 3
    assert len({claim.action_key for claim in claims}) == 1


@pytest.mark.usefixtures("sharing")
def test_one_that_shares_waits_without_being_told_for_whom(core, jobs, runner, compiler):
    first, second = (submit_job(core, jobs, name) for name in ("a", "b"))
    claim = claiming.take(core, first.id, "worker")
    assert claiming.take(core, second.id, "worker") is None
    (waiting,) = jobs.of("b").get(second.job_id).builds
    shown = [waiting.note, *(event.data for event in jobs.of("b").events(second.job_id))]
    assert "equal build" in waiting.note
    assert first.job_id not in str(shown)
    runner.run(claim)
    (ended,) = jobs.of("b").get(second.job_id).builds
    assert (ended.state, ended.cached, len(compiler.jobs)) == (State.SUCCEEDED, True, 1)
    assert ended.artifact.ref == f"b/bundles@{ended.artifact.digest}"
    assert blobs_of(core, "b").has(ended.artifact.digest)
    assert core.store.references.referrers("b/bundles", ended.artifact.digest)


@pytest.mark.usefixtures("sharing")
def test_a_shared_failure_names_its_reproducer_by_ones_own_repository(core, jobs, runner, compiler):
    first, second = (submit_job(core, jobs, name) for name in ("a", "b"))
    claim = claiming.take(core, first.id, "worker")
    claiming.take(core, second.id, "worker")

    def fail(cancelled):
        job = compiler.jobs[-1]
        assert isinstance(job, CompileJob)
        raise mismatch(job)

    compiler.behaviour = fail
    runner.run(claim)
    for name, build in (("a", first), ("b", second)):
        (ended,) = jobs.of(name).get(build.job_id).builds
        reproducer = ended.error.details["reproducer"]
        assert reproducer["ref"] == f"{name}/bundles@{reproducer['digest']}"
        assert blobs_of(core, name).has(reproducer["digest"])
