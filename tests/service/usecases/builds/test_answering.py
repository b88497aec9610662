"""Builds that the cache has are answered when they are submitted, as a worker would answer them."""

import pytest
from prometheus_client import CollectorRegistry

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.core import Core
from service.domain import EventType, Job
from service.identity import DEFAULT, bundles_of
from service.jobs import Jobs
from service.usecases.builds import fleet
from service.usecases.store import holdings
from service.usecases.tenants import tenants
from service.workers.worker import Worker
from tests.service.fakes import FakeClock, FakeCompiler, FakeDoorbell

V3 = CompileRequest(targets=("x86-64-v3",))
BOTH = CompileRequest(targets=("x86-64-v3", "x86-64-v2"))


class Now:
    """Remembers nothing, so that each test sees what is there."""

    def get(self, key, now, seconds, find, *, none_s=None, renewal=None):
        return find()


@pytest.fixture
def forgetful(core: Core) -> Core:
    object.__setattr__(core, "recent", Now())
    return core


@pytest.fixture
def worker(forgetful: Core):
    created = Worker(forgetful, slots=1, registry=CollectorRegistry())
    created.sweep()
    yield created
    created.draining.set()
    created.close()


def build_bundle(jobs: Jobs, worker: Worker, model: str, request: CompileRequest = V3) -> Job:
    """A job that the worker has seen to its end."""
    job = jobs.submit(model, request)
    worker.answer(job.builds[0].id)
    return jobs.get(job.id)


def test_a_result_of_the_cache_is_the_answer(
    jobs: Jobs, worker: Worker, model: str, doorbell: FakeDoorbell
) -> None:
    first = build_bundle(jobs, worker, model)
    doorbell.rings.clear()
    job = jobs.submit(model, V3)
    (build,), (earlier,) = job.builds, first.builds
    assert (job.state, build.state, build.cached) == (State.SUCCEEDED, State.SUCCEEDED, True)
    assert build.artifact == earlier.artifact
    assert (build.profile, build.numerics) == (earlier.profile, earlier.numerics)
    assert build.action_key == earlier.action_key
    assert doorbell.rings == []
    assert jobs.get(job.id) == job


def test_it_has_the_events_the_tag_and_the_count_of_one_that_waited_for_an_equal_build(
    jobs: Jobs, worker: Worker, model: str, core: Core
) -> None:
    pair = [jobs.submit(model, V3).id for _ in range(2)]
    worker.answer("")
    (waited,) = [job for job in map(jobs.get, pair) if job.builds[0].cached]
    answered = jobs.submit(model, V3)
    reported = [
        [(event.type, event.target, event.data) for event in jobs.events(job.id)]
        for job in (waited, answered)
    ]
    kinds = [EventType.JOB_QUEUED, EventType.BUILD_FINISHED, EventType.JOB_FINISHED]
    assert [kind for kind, *_ in reported[1]] == kinds
    assert reported[1][1:] == reported[0][-2:]
    index = jobs.get(answered.id).index
    assert index == answered.index
    assert index.digest == jobs.get(waited.id).index.digest
    references = holdings.view(core, DEFAULT).references
    assert references.resolve(bundles_of(DEFAULT), f"job-{answered.id}") == index.digest
    assert list(core.store.references.all_tags()) == [], "the store has no part in it"


def test_a_worker_ends_what_became_known_while_it_was_queued(
    jobs: Jobs, worker: Worker, model: str, compiler: FakeCompiler
) -> None:
    queued = [jobs.submit(model, V3).id for _ in range(3)]
    worker.answer("")
    ended = [jobs.get(job_id).builds[0] for job_id in queued]
    first, *others = sorted(ended, key=lambda build: build.cached)
    assert (first.cached, first.attempts) == (False, 1)
    assert [(build.state, build.cached) for build in others] == [(State.SUCCEEDED, True)] * 2
    assert {build.action_key for build in others} == {first.action_key}
    assert len(compiler.jobs) == 1
    assert all(jobs.get(job_id).index for job_id in queued)


def test_a_cancelled_build_is_not_answered(jobs: Jobs, worker: Worker, model: str) -> None:
    build_bundle(jobs, worker, model)
    fleet.depart(worker._core, worker.name)
    job = jobs.submit(model, V3)
    jobs.cancel(job.id)
    worker.answer(job.builds[0].id)
    assert jobs.get(job.id).state is State.CANCELLED


def test_targets_that_the_cache_lacks_are_queued(
    jobs: Jobs, worker: Worker, model: str, doorbell: FakeDoorbell
) -> None:
    build_bundle(jobs, worker, model)
    doorbell.rings.clear()
    job = jobs.submit(model, BOTH)
    # The stub's keys hold all targets of a request, as no real ones do: nothing equals BOTH.
    assert [build.state for build in job.builds] == [State.QUEUED, State.QUEUED]
    for _ in job.builds:
        worker.answer("")
    again = jobs.submit(model, BOTH)
    assert [build.cached for build in again.builds] == [True, True]
    assert again.state is State.SUCCEEDED


def test_without_a_live_worker_or_with_workers_that_differ_a_worker_is_asked(
    jobs: Jobs, worker: Worker, model: str, core: Core, clock: FakeClock
) -> None:
    build_bundle(jobs, worker, model)
    assert jobs.submit(model, V3).state is State.SUCCEEDED
    fleet.announce(core, "old", "host", worker.capabilities, 1)
    assert jobs.submit(model, V3).state is State.QUEUED
    fleet.depart(core, "old")
    assert jobs.submit(model, V3).state is State.SUCCEEDED
    clock.advance(2 * core.settings.lease_s)
    assert jobs.submit(model, V3).state is State.QUEUED


def test_a_report_of_other_sources_names_no_key(
    jobs: Jobs, worker: Worker, model: str, core: Core
) -> None:
    build_bundle(jobs, worker, model)
    fleet.depart(core, worker.name)
    forged = {"identity": {"fake": False}, "signed_by": None}
    fleet.announce(core, "forged", "host", worker.capabilities, 1, keys=forged)
    assert jobs.submit(model, V3).state is State.QUEUED


def test_a_record_that_names_a_bundle_of_another_key_is_left_to_a_worker(
    jobs: Jobs, worker: Worker, model: str, core: Core
) -> None:
    other = build_bundle(
        jobs, worker, model, CompileRequest.of(dims={"n": 3}, targets=["x86-64-v3"])
    )
    asked = core.compiler.known_key(model, V3, "x86-64-v3", {"fake": True})
    core.store.actions.put(asked.digest, other.builds[0].artifact.digest)
    assert jobs.submit(model, V3).state is State.QUEUED


def test_a_lost_bundle_is_compiled_again(
    jobs: Jobs, worker: Worker, model: str, core: Core, clock: FakeClock
) -> None:
    bundle = build_bundle(jobs, worker, model).builds[0].artifact
    core.store.blobs.discard(bundle.digest, before=float("inf"))
    assert jobs.submit(model, V3).state is State.QUEUED


def test_a_dump_is_a_workers_business(jobs: Jobs, worker: Worker, model: str) -> None:
    build_bundle(jobs, worker, model)
    dumped = CompileRequest.of(targets=["x86-64-v3"], options={"dump": True})
    assert jobs.submit(model, dumped).state is State.QUEUED


def test_tenants_take_each_others_results_only_where_both_share(
    jobs: Jobs, worker: Worker, core: Core, model: str
) -> None:
    build_bundle(jobs, worker, model)
    tenants.create(core, "vision")
    theirs = jobs.of("vision")
    assert theirs.store.blobs.put(b"a model").digest == model
    assert theirs.submit(model, V3).state is State.QUEUED
    worker.answer("")
    mine = theirs.submit(model, V3)
    assert mine.state is State.SUCCEEDED
    assert mine.builds[0].artifact.ref.startswith(bundles_of("vision"))
    tenants.create(core, "audio")
    tenants.change(core, "audio", shares_cache=True)
    audio = jobs.of("audio")
    audio.store.blobs.put(b"a model")
    shared = audio.submit(model, V3)
    assert shared.state is State.SUCCEEDED
    assert audio.store.blobs.has(shared.builds[0].artifact.digest)


def test_an_idempotency_key_finds_the_answer(jobs: Jobs, worker: Worker, model: str) -> None:
    build_bundle(jobs, worker, model)
    first = jobs.submit(model, V3, "key")
    assert first.state is State.SUCCEEDED
    assert jobs.submit(model, V3, "key").id == first.id
