"""Garbage collection: what the service keeps, and what it removes."""

import math
import os
import time

import pytest
from sqlalchemy import select, update

from artifacts.documents import read_document
from artifacts.errors import BlobCorrupt, BlobNotFound
from artifacts.models import put_model
from artifacts.oci import REPOSITORY, REPRODUCER, publish_bundle, publish_files
from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.db.schema import chores as turns
from service.db.schema import jobs as job_rows
from service.domain import Artifact, Outcome
from service.errors import ChoreTaken, UnknownJob, UnknownPin
from service.identity import DEFAULT
from service.usecases import chores, counting
from service.usecases.builds import claiming, ending
from service.usecases.store import collecting, holdings, marking, pinning

DAY = 86400.0
LONG = 40 * DAY


@pytest.fixture(autouse=True)
def _one_clock(clock, monkeypatch):
    """Blobs and records are touched at the time of the fake clock too."""

    class Time:
        time = staticmethod(clock)

    monkeypatch.setattr("artifacts.local.time", Time)


def age_records(core, seconds):
    """Records keep the system's time: make them older than the fake clock's present."""
    root = core.settings.data_dir / "store" / "records"
    for path in root.rglob("*"):
        if path.is_file():
            then = core.clock() - seconds
            os.utime(path, (then, then))


def build_bundle(jobs, model, answer, **fields):
    job = jobs.submit(model, CompileRequest.of(**fields))
    for build in job.builds:
        answer(build.id)
    return jobs.get(job.id)


def tagged_by_an_earlier_release(core, job):
    """Releases before this one wrote the tags of jobs to the store."""
    core.store.references.tag(REPOSITORY, f"job-{job.id}", job.index.digest)


def hold(core):
    return {entry.digest for entry in core.store.blobs.listing()}


def test_a_young_job_keeps_its_model_bundle_and_index(core, jobs, model, answer, clock):
    job = build_bundle(jobs, model, answer)
    stray = core.store.blobs.put(b"stray").digest
    clock.advance(2 * DAY)
    age_records(core, LONG)
    done = collecting.run(core)
    assert done.removed == (stray,)
    (build,) = jobs.get(job.id).builds
    assert core.store.actions.get(build.action_key) == build.artifact.digest
    assert holdings.view(core, DEFAULT).references.tags(REPOSITORY) == [f"job-{job.id}"]
    assert core.store.blobs.has(job.index.digest)
    assert core.store.blobs.has(model)


def test_the_reproducer_of_a_failed_build_stays_as_long_as_the_job(
    core, jobs, model, clock, tmp_path
):
    (tmp_path / "model.onnx").write_bytes(b"few nodes")
    shown = publish_files(core.store.blobs, tmp_path, REPRODUCER, {})
    job = jobs.submit(model, CompileRequest.of())
    reproducer = Artifact(shown.digest, shown.ref, shown.size).to_json()
    failure = Failure("verify.mismatch", "verify", "off", details={"reproducer": reproducer})
    claim = claiming.take(core, job.builds[0].id, "worker")
    ending.finish(core, claim, Outcome(State.FAILED, error=failure))
    clock.advance(2 * DAY)
    assert collecting.run(core).removed == ()
    assert core.store.blobs.has(shown.digest)
    clock.advance(LONG)
    assert shown.digest in collecting.run(core).removed


def test_an_old_job_goes_with_all_that_only_it_needed(core, jobs, model, answer, clock):
    job = build_bundle(jobs, model, answer)
    tagged_by_an_earlier_release(core, job)
    clock.advance(LONG)
    age_records(core, LONG)
    planned = collecting.run(core, dry_run=True)
    assert jobs.get(job.id).state is State.SUCCEEDED
    done = collecting.run(core)
    assert set(planned.removed) == set(done.removed)
    for count in ("removed_blobs", "removed_bytes", "removed_records", "expired_jobs"):
        assert getattr(planned, count) == getattr(done, count) > 0
    assert (planned.removed_tags, done.removed_tags) == (1, 1)
    assert hold(core) == set()
    with pytest.raises(UnknownJob):
        jobs.get(job.id)
    assert holdings.view(core, DEFAULT).references.tags(REPOSITORY) == []
    assert list(core.store.actions.entries()) == []
    assert counting.value_of(core, counting.EXPIRED_JOBS) == 1
    assert counting.value_of(core, counting.REMOVED_BYTES) == done.removed_bytes


def test_the_files_of_a_model_stay_as_long_as_its_job(core, jobs, answer, clock):
    blobs = core.store.blobs
    files = {name: blobs.put(name.encode()) for name in ("model.onnx", "w", "base.data")}
    model = put_model(blobs, files)
    job = build_bundle(jobs, model, answer)
    digests = {model, *(blob.digest for blob in files.values())}
    clock.advance(2 * DAY)
    age_records(core, LONG)
    assert collecting.run(core).removed == ()
    assert digests <= hold(core)
    clock.advance(LONG)
    assert digests <= set(collecting.run(core).removed)
    with pytest.raises(UnknownJob):
        jobs.get(job.id)


def test_blobs_that_were_set_aside_go_when_jobs_of_that_age_do(core, clock):
    digest = core.store.blobs.put(b"content").digest
    folder = core.settings.data_dir / "store"
    path = folder / "blobs" / "sha256" / digest[7:9] / digest[7:]
    path.chmod(0o644)
    path.write_bytes(b"other")
    with pytest.raises(BlobCorrupt):
        core.store.blobs.read(digest)
    (aside,) = (folder / "quarantine").iterdir()
    clock.advance(LONG / 2)
    assert collecting.run(core).expired_corrupt == 0
    clock.advance(LONG)
    assert collecting.run(core, dry_run=True).expired_corrupt == 1
    assert aside.exists()
    assert collecting.run(core).expired_corrupt == 1
    assert not aside.exists()


def test_a_job_that_has_not_ended_never_expires(core, jobs, model, clock):
    job = jobs.submit(model, CompileRequest())
    clock.advance(LONG)
    assert collecting.run(core).expired_jobs == 0
    assert jobs.get(job.id).state is State.QUEUED
    assert core.store.blobs.has(model)


@pytest.mark.parametrize("by", ["tag", "pin"])
def test_a_tag_and_a_pin_keep_a_bundle(core, jobs, model, answer, clock, by):
    (build,) = build_bundle(jobs, model, answer).builds
    digest = build.artifact.digest
    if by == "tag":
        core.store.references.tag("team/minilm", "v1", digest)
    else:
        pinning.pin(core, digest, who="me", why="in production")
    clock.advance(LONG)
    age_records(core, LONG)
    collecting.run(core)
    manifests = [digest, *core.store.references.referrers(REPOSITORY, digest)]
    assert len(manifests) == 3  # the bundle, its bill of materials and its profile
    assert hold(core) == {
        *manifests,
        *(
            blob.digest
            for manifest in manifests
            for blob in read_document(core.store.blobs, manifest).blobs
        ),
    }


def test_a_pin_ends(core, clock):
    digest = core.store.blobs.put(b"weights").digest
    pinning.pin(core, digest, who="me", why="", days=10)
    clock.advance(9 * DAY)
    assert collecting.run(core).removed == ()
    assert [pin.digest for pin in pinning.list_pins(core)] == [digest]
    clock.advance(2 * DAY)
    assert pinning.list_pins(core) == []
    assert collecting.run(core).removed == (digest,)
    with pytest.raises(UnknownPin):
        pinning.unpin(core, digest)


def test_everything_is_kept_without_a_retention(core, jobs, model, answer, clock, tmp_path):
    queued = jobs.submit(model, CompileRequest.of(dims={"n": 3}))
    job = build_bundle(jobs, model, answer)
    object.__setattr__(core, "settings", core.settings.model_copy(update={"retention_days": 0}))
    clock.advance(100 * LONG)
    age_records(core, LONG)
    done = collecting.run(core)
    assert (done.removed, done.expired_jobs) == ((), 0)
    assert {result.id for result in jobs.list()} == {queued.id, job.id}


def test_many_jobs_expire_in_batches(core, jobs, model, answer, clock, monkeypatch):
    monkeypatch.setattr("service.usecases.store.expiring.BATCH", 2)
    for number in range(5):
        jobs.cancel(jobs.submit(model, CompileRequest.of(dims={"n": number + 1})).id)
    clock.advance(LONG)
    late = jobs.submit(model, CompileRequest())
    assert collecting.run(core).expired_jobs == 5
    assert [job.id for job in jobs.list()] == [late.id]


def test_an_upload_that_nobody_goes_on_with_is_removed(core, clock):
    folder = core.settings.upload_dir
    folder.mkdir(parents=True)
    for name, age in (("old", 2 * DAY), ("young", 60)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (clock() - age, clock() - age))
    assert collecting.run(core, dry_run=True).expired_uploads == 1
    assert collecting.run(core).expired_uploads == 1
    assert [path.name for path in folder.iterdir()] == ["young"]


def test_one_process_collects_at_a_time(core, clock):
    with chores.turn(core, chores.GC):
        with pytest.raises(ChoreTaken):
            collecting.run(core)
        assert collecting.run(core, dry_run=True).removed == ()
    collecting.run(core)


def test_a_turn_is_taken_over_from_a_process_that_fell_silent(core, clock):
    with chores.turn(core, chores.GC) as lost:
        clock.advance(chores.LEASE_S + 1)
        with chores.turn(core, chores.GC), pytest.raises(ChoreTaken):
            lost.renew()


def test_a_turn_is_kept_by_renewing_it(core, clock):
    with chores.turn(core, chores.GC) as turn:
        for _ in range(5):
            clock.advance(chores.LEASE_S * 2 / 3)
            turn.renew()
            with pytest.raises(ChoreTaken), chores.turn(core, chores.GC):
                pass


def test_a_turn_is_kept_while_a_statement_takes_longer_than_a_lease(core, clock, monkeypatch):
    monkeypatch.setattr(chores, "LEASE_S", 0.4)
    real, seen = marking.mark, []

    def held_until():
        with core.reading() as tx:
            query = select(turns.c.held_until).where(turns.c.name == chores.GC)
            return tx.connection.execute(query).scalar_one()

    def mark(core, limits):
        seen.append(held_until())
        clock.advance(0.3)
        end = time.monotonic() + 60
        while held_until() == seen[0] and time.monotonic() < end:
            time.sleep(0.01)
        seen.append(held_until())
        real(core, limits)

    monkeypatch.setattr(marking, "mark", mark)
    collecting.run(core)
    assert seen[1] > seen[0]
    assert held_until() == 0


def test_a_collection_is_due_once_an_interval(core, clock):
    assert collecting.is_due(core)
    collecting.run(core)
    assert not collecting.is_due(core)
    clock.advance(core.settings.gc_s + 1)
    assert collecting.is_due(core)


def test_what_is_broken_is_not_pinned(core, jobs, model, answer):
    (build,) = build_bundle(jobs, model, answer).builds
    layer = read_document(core.store.blobs, build.artifact.digest).layers[0].digest
    core.store.blobs.discard(layer, math.inf)
    with pytest.raises(BlobNotFound):
        pinning.pin(core, build.artifact.digest, who="me", why="")
    assert pinning.list_pins(core) == []


def test_a_bundle_built_again_after_its_collection(core, jobs, model, answer, clock, tmp_path):
    job = build_bundle(jobs, model, answer)
    clock.advance(LONG)
    age_records(core, LONG)
    collecting.run(core)
    core.store.blobs.put(b"a model")
    again = build_bundle(jobs, model, answer)
    assert again.builds[0].artifact.digest == job.builds[0].artifact.digest
    assert not again.builds[0].cached


def test_a_bundle_published_by_hand_and_not_named_goes_after_the_grace(core, clock, tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "model.so").write_bytes(b"code")
    digest = publish_bundle(core.store.blobs, tmp_path / "bundle").digest
    clock.advance(core.settings.grace_s - 60)
    assert collecting.run(core).removed == ()
    clock.advance(120)
    assert collecting.run(core).removed[0] == digest


def test_a_kept_jobs_tag_is_not_read(core, jobs, model, answer, monkeypatch):
    tagged_by_an_earlier_release(core, build_bundle(jobs, model, answer))
    read = []
    monkeypatch.setattr(core.store.references, "resolve", lambda *names: read.append(names))
    assert collecting.run(core).removed == ()
    assert read == []


def test_the_index_of_an_earlier_releases_job_stays(core, jobs, model, answer, clock):
    job = build_bundle(jobs, model, answer)
    tagged_by_an_earlier_release(core, job)
    with core.writing() as tx:
        tx.connection.execute(update(job_rows).values(index_digest=None))
    references, tag = holdings.view(core, DEFAULT).references, f"job-{job.id}"
    clock.advance(2 * DAY)
    age_records(core, LONG)
    assert collecting.run(core).removed == ()
    assert core.store.blobs.has(job.index.digest)
    assert references.tags(REPOSITORY) == [tag]
    assert references.resolve(REPOSITORY, tag) == job.index.digest
    jobs.get(job.id)  # whoever looks at it notes its index
    with core.reading() as tx:
        assert tx.job(job.id).index_digest == job.index.digest
