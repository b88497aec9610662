"""The memory of an API process of the cache, and what makes it look again."""

import math
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from artifacts.documents import read_document
from artifacts.errors import BlobCorrupt, StorageFailed
from artifacts.store import BlobStore
from relaxd.contract.states import State
from service.core import Core
from service.domain import Job
from service.jobs import Jobs
from service.usecases.jobs.deleting import delete_tenant
from service.usecases.store import remembering
from service.usecases.tenants import tenants
from service.workers.worker import Worker
from tests.service.fakes import FakeClock
from tests.service.usecases.builds.test_answering import V3, build_bundle

LATER_S = remembering.LOOK_S + 1
Hit = Callable[[float], Job]


@pytest.fixture(autouse=True)
def _one_clock(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        time = staticmethod(clock)

    monkeypatch.setattr("artifacts.local.time", Time)


@pytest.fixture
def hit(core: Core, jobs: Jobs, model: str, clock: FakeClock) -> Iterator[Hit]:
    """Submits what has been built, so many seconds after the last time."""
    worker = Worker(core, slots=1, registry=CollectorRegistry())
    worker.sweep()
    build_bundle(jobs, worker, model)

    def hit(after_s: float) -> Job:
        clock.advance(after_s)
        worker.sweep()
        return jobs.submit(model, V3)

    assert hit(LATER_S).state is State.SUCCEEDED
    yield hit
    worker.draining.set()
    worker.close()


@pytest.fixture
def bundle(jobs: Jobs, hit: Hit) -> str:
    return jobs.list()[0].builds[0].artifact.digest


@pytest.fixture
def reads(core: Core, hit: Hit, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blobs that are read from now on."""
    result: list[str] = []
    read = type(core.store.blobs).read

    def noted(blobs: BlobStore, digest: str) -> bytes:
        result.append(digest)
        return read(blobs, digest)

    monkeypatch.setattr(type(core.store.blobs), "read", noted)
    return result


def test_nothing_is_read_again_for_a_long_time(hit: Hit, bundle: str, reads: list[str]) -> None:
    assert {hit(LATER_S).state for _ in range(20)} == {State.SUCCEEDED}
    assert reads == []
    assert hit(remembering.MOST_S).state is State.SUCCEEDED
    assert bundle in reads


def test_a_short_grace_period_is_a_short_memory(
    core: Core, hit: Hit, bundle: str, reads: list[str]
) -> None:
    short = core.settings.model_copy(update={"gc_grace_s": 300.0, "job_timeout_s": 1.0})
    object.__setattr__(core, "settings", short)
    hit(LATER_S)
    assert reads == []
    hit(300.0 / 4)
    assert bundle in reads


def test_a_record_that_is_gone_is_noticed(core: Core, hit: Hit) -> None:
    core.store.actions.drop(hit(0).builds[0].action_key)
    assert hit(LATER_S).state is State.QUEUED


def test_a_bundle_that_is_gone_is_noticed(core: Core, hit: Hit, bundle: str) -> None:
    core.store.blobs.discard(bundle, before=math.inf)
    assert hit(LATER_S).state is State.QUEUED


def test_an_index_that_is_gone_is_made_again(core: Core, hit: Hit) -> None:
    index = hit(0).index.digest
    core.store.blobs.discard(index, before=math.inf)
    assert hit(LATER_S).index.digest == index
    assert core.store.blobs.has(index)


def test_a_file_of_the_bundle_that_was_set_aside_is_noticed(
    core: Core, hit: Hit, bundle: str
) -> None:
    layer = read_document(core.store.blobs, bundle).layers[0].digest
    path = core.settings.data_dir / "store/blobs/sha256" / layer[7:9] / layer[7:]
    path.chmod(0o644)
    path.write_bytes(b"other")
    with pytest.raises(BlobCorrupt):
        core.store.blobs.read(layer)
    assert hit(LATER_S).state is State.QUEUED


def test_a_store_that_is_away_is_a_workers_business(
    core: Core, hit: Hit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StorageFailed("away")

    with monkeypatch.context() as patched:
        for name in ("has", "quarantine"):
            patched.setattr(type(core.store.blobs), name, away)
        assert hit(LATER_S).state is State.QUEUED
    assert hit(LATER_S).state is State.SUCCEEDED


def test_a_later_tenant_of_the_same_name_is_given_the_result_anew(
    core: Core, jobs: Jobs, hit: Hit, bundle: str, clock: FakeClock, model: str
) -> None:
    for _ in range(2):
        tenants.create(core, "audio")
        tenants.change(core, "audio", shares_cache=True)
        audio = jobs.of("audio")
        audio.store.blobs.put(b"a model")
        hit(LATER_S)
        job = audio.submit(model, V3)
        assert job.builds[0].artifact.digest == bundle
        assert audio.store.blobs.has(bundle)
        assert audio.store.blobs.has(job.index.digest)
        delete_tenant(core, "audio")
