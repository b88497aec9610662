"""The blobs that a collection removes or spares, on every kind of store, and each race by a fixed
interleaving.
"""

import contextlib
import math
import threading
import time
from dataclasses import replace

import pytest
from sqlalchemy import delete, insert

from artifacts.cache import ActionCache
from artifacts.documents import (
    BUNDLE,
    EMPTY,
    Descriptor,
    index_bytes,
    keep,
    manifest_bytes,
    read_document,
)
from artifacts.references import References
from artifacts.store import Artifacts
from relaxd.contract.canonical import digest_of
from service.core import Core
from service.db.engine import Database
from service.db.schema import pins
from service.domain import Sweep
from service.settings import Settings
from service.usecases.store import collecting, marking, sweeping
from tests.artifacts.conftest import local, remote
from tests.service import tables
from tests.service.fakes import FakeCompiler, FakeDoorbell

KEY = digest_of(b"an action key")
HOUR = 3600.0


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.scaled)])
def backend(request, tmp_path):
    match request.param:
        case "local":
            return local(tmp_path / "store")
        case "memory":
            return remote("memory://")
    return remote(request.getfixturevalue("s3_url"), tick_s=1.0)


@pytest.fixture
def store(backend, monkeypatch) -> Artifacts:
    monkeypatch.setattr("artifacts.remote.FRESH_S", 0.0)
    monkeypatch.setattr("artifacts.local.FRESH_S", -1.0)
    monkeypatch.setattr("service.usecases.store.catalog.FRESH_S", 0.0)
    actions = ActionCache(backend.records, lambda digest: keep(backend.blobs, digest))
    return Artifacts(backend.blobs, actions, References(backend.records))


@pytest.fixture
def core(store, tmp_path, monkeypatch):
    monkeypatch.setattr("service.usecases.store.store_audit.is_due", lambda core: True)
    url = tables.copy_sqlite(tmp_path / "jobs.sqlite")
    db = Database(url)
    settings = Settings(data_dir=tmp_path, database_url=url)
    yield Core(settings, db, store, FakeCompiler(), FakeDoorbell(), time.time)
    db.close()


def push(store, *layers, subject=None):
    """A manifest over those layers."""
    blobs = store.blobs
    config = blobs.put(b"{}")
    listed = [
        Descriptor("application/octet-stream", blob.digest, blob.size)
        for blob in (blobs.put(layer) for layer in layers)
    ]
    subject = subject and Descriptor(EMPTY, subject, 1)
    empty = Descriptor(EMPTY, config.digest, config.size)
    return blobs.put(manifest_bytes(BUNDLE, empty, listed, {}, subject)).digest


@pytest.fixture
def soon(backend):
    """Limits under which all that was put until now is old, and nothing that is put later."""

    def soon(**age):
        time.sleep(backend.tick_s)
        now = math.floor(time.time() / backend.tick_s) * backend.tick_s
        return Sweep(time.time(), now - age.get("grace", 0), now - age.get("records", 0))

    return soon


def everything(store):
    return {blob.digest for blob in store.blobs.listing()}


@pytest.fixture
def sweep(soon, core, monkeypatch):
    def sweep(store, *roots, limits=None, **options):
        with core.writing() as tx:
            tx.connection.execute(delete(pins))
            row = {"who": "", "why": "", "created_at": 0.0}
            for root in roots:
                tx.connection.execute(insert(pins).values(digest=root, **row))
        chosen = limits or soon()
        monkeypatch.setattr(collecting, "_limits", lambda core: chosen)
        return collecting.run(replace(core, store=store), **options)

    return sweep


def test_what_no_root_reaches_is_removed_and_the_rest_stays(store, sweep):
    retained, lost = push(store, b"one", b"two"), push(store, b"two", b"three")
    report = sweep(store, retained)
    assert everything(store) == {retained, *map(digest_of, (b"one", b"two", b"{}"))}
    assert set(report.removed) == {lost, digest_of(b"three")}
    assert (report.blobs, report.removed_blobs) == (6, 2)
    assert report.removed_bytes == report.bytes - sum(
        store.blobs.size(digest) for digest in everything(store)
    )


def test_a_dry_run_names_the_same_and_removes_nothing(store, sweep, soon):
    push(store, b"one"), store.actions.put(KEY, push(store, b"two"))
    before = everything(store)
    limits = soon()
    planned = sweep(store, limits=limits, dry_run=True)
    assert everything(store) == before
    assert store.actions.get(KEY)
    done = sweep(store, limits=soon())
    assert set(planned.removed) == set(done.removed) == before
    assert planned.removed_records == done.removed_records == 1


def test_young_blobs_stay_with_what_they_refer_to(store, sweep, soon):
    store.blobs.put(b"old layer")
    limits = soon()
    empty = Descriptor(EMPTY, store.blobs.put(b"{}").digest, 2)
    layer = Descriptor("application/octet-stream", digest_of(b"old layer"), 9)
    store.blobs.put(manifest_bytes(BUNDLE, empty, [layer], {}, None))
    assert sweep(store, limits=limits).removed == ()


def test_an_index_keeps_its_bundles_and_a_bundle_its_referrers(store, sweep):
    bundle = push(store, b"one")
    sbom = push(store, b"sbom", subject=bundle)
    store.references.refer("relaxd/bundles", bundle, sbom)
    index = store.blobs.put(
        index_bytes([Descriptor(EMPTY, bundle, store.blobs.size(bundle)).to_json()])
    ).digest
    assert sweep(store, index).removed == ()
    removed = sweep(store).removed
    assert removed.index(index) < removed.index(bundle) < removed.index(digest_of(b"one"))
    assert removed.index(sbom) < removed.index(digest_of(b"sbom"))
    assert store.references.referrers("relaxd/bundles", bundle) == []


def test_a_subject_stays_as_long_as_its_referrer_is_a_root(store, sweep):
    bundle = push(store, b"one")
    assert sweep(store, push(store, b"sbom", subject=bundle)).removed == ()


def test_a_bundle_of_the_action_cache_stays_for_its_retention(store, sweep, soon):
    bundle = push(store, b"one")
    store.actions.put(KEY, bundle)
    assert sweep(store, limits=soon(records=HOUR)).removed == ()
    assert set(sweep(store).removed) >= {bundle, digest_of(b"one")}
    assert list(store.actions.entries()) == []


def test_a_record_goes_before_its_bundle_and_a_manifest_before_its_layers(
    store, sweep, monkeypatch
):
    bundle = push(store, b"one")
    store.actions.put(KEY, bundle)
    real, steps = type(store.blobs).discard_many, []

    def discard_many(blobs, digests, before):
        steps.append((digests, list(store.actions.entries())))
        assert digests == [bundle] or not blobs.has(bundle)
        return real(blobs, digests, before)

    monkeypatch.setattr(type(store.blobs), "discard_many", discard_many)
    sweep(store)
    assert steps[0] == ([bundle], [])


@pytest.fixture(params=["marked", "begun"])
def between_mark_and_sweep(request, sweep, monkeypatch):
    """Runs an action once all is marked: before marked manifests are looked at again, and after."""

    def collecting(store, action):
        module, name = (marking, "mark") if request.param == "marked" else (sweeping, "begin")
        real = getattr(module, name)

        def then_act(*arguments):
            real(*arguments)
            action()

        monkeypatch.setattr(module, name, then_act)
        return sweep(store)

    return collecting


def test_race_an_upload_that_finds_the_blob_there(store, between_mark_and_sweep):
    store.blobs.put(b"layer")
    report = between_mark_and_sweep(store, lambda: store.blobs.touch(digest_of(b"layer")))
    assert report.removed == ()
    assert store.blobs.read(digest_of(b"layer")) == b"layer"


def test_race_an_upload_of_a_doomed_blob(store, between_mark_and_sweep):
    store.blobs.put(b"layer")
    report = between_mark_and_sweep(store, lambda: store.blobs.put(b"layer"))
    assert report.removed == ()
    assert store.blobs.read(digest_of(b"layer")) == b"layer"


def test_race_a_look_after_the_removal_finds_nothing(store, sweep):
    digest = store.blobs.put(b"layer").digest
    sweep(store)
    assert not store.blobs.touch(digest)
    assert not store.blobs.has(digest)


def test_race_a_cache_hit_keeps_the_bundle_and_its_record(store, between_mark_and_sweep):
    bundle = push(store, b"one", b"two")
    store.actions.put(KEY, bundle)
    hits = []
    report = between_mark_and_sweep(store, lambda: hits.append(store.actions.get(KEY)))
    assert hits == [bundle]
    assert report.removed == ()
    assert store.actions.get(KEY) == bundle


def test_race_a_touched_manifest_keeps_layers_that_nobody_has_touched_yet(
    store, between_mark_and_sweep
):
    bundle = push(store, b"one", b"two")
    report = between_mark_and_sweep(store, lambda: store.blobs.touch(bundle))
    assert report.removed == ()
    assert all(store.blobs.has(layer.digest) for layer in read_document(store.blobs, bundle).blobs)


def test_race_a_referrer_pushed_again_stays_listed(store, between_mark_and_sweep):
    bundle = push(store, b"one")
    sbom = push(store, b"sbom", subject=bundle)
    store.references.refer("relaxd/bundles", bundle, sbom)

    def push_again():
        push(store, b"one")
        store.references.refer("relaxd/bundles", bundle, push(store, b"sbom", subject=bundle))

    assert between_mark_and_sweep(store, push_again).removed == ()
    assert store.references.referrers("relaxd/bundles", bundle) == [sbom]


def test_a_collection_that_is_cut_short_leaves_no_manifest_without_its_layers(store, sweep, soon):
    bundles = [push(store, b"%d" % number, b"shared") for number in range(6)]
    limits = soon()

    class Enough(Exception):
        """Stop."""

    for allowed in range(12):
        left = [allowed]

        def beat(left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Enough

        with contextlib.suppress(Enough):
            sweep(store, limits=limits, check=beat)
        for bundle in bundles:
            if store.blobs.has(bundle):
                assert all(
                    store.blobs.has(blob.digest)
                    for blob in read_document(store.blobs, bundle).blobs
                )


class CountingRecords:
    """Records that count reads, and how many are under way at once."""

    def __init__(self, records):
        self._records = records
        self._lock = threading.Lock()
        self.reads, self.under_way, self.most = 0, 0, 0

    def __getattr__(self, name):
        return getattr(self._records, name)

    def get(self, name):
        with self._lock:
            self.reads += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        time.sleep(0.01)
        record = self._records.get(name)
        with self._lock:
            self.under_way -= 1
        return record


def test_each_action_record_and_each_manifest_is_read_once(backend, core, sweep, monkeypatch):
    records = CountingRecords(backend.records)
    actions = ActionCache(records, lambda digest: keep(backend.blobs, digest))
    store = Artifacts(backend.blobs, actions, References(records))
    bundles = [push(store, f"layer {number}".encode()) for number in range(40)]
    for number, bundle in enumerate(bundles):
        backend.records.set(f"actions/{number:02}/{32 * f'{number:02}'}", bundle)
        store.references.refer("relaxd/bundles", bundle, push(store, b"sbom", subject=bundle))
    records.reads, read = 0, []
    real = type(store.blobs).read
    monkeypatch.setattr(type(store.blobs), "read", lambda *of: read.append(of[1]) or real(*of))
    report = sweep(store, *bundles)
    assert (report.removed, records.reads) == ((), 40), "each action record, and no referrer's"
    assert records.most > 8
    assert len(read) == len(set(read)) == report.blobs
    chosen = collecting._limits(core)
    monkeypatch.setattr("service.usecases.store.store_audit.SETTLED_S", -HOUR)
    assert sweep(store, *bundles, limits=chosen).removed == ()
    assert (records.reads, len(read)) == (40, report.blobs)


def test_no_blob_goes_before_what_refers_to_it(store, sweep, monkeypatch):
    bundles = [push(store, f"layer {number}".encode()) for number in range(40)]
    parts = {
        bundle: [blob.digest for blob in read_document(store.blobs, bundle).blobs]
        for bundle in bundles
    }
    real, gone = type(store.blobs).discard_many, []

    def discard_many(blobs, digests, before):
        removed = real(blobs, digests, before)
        gone.extend(sorted(removed))
        return removed

    monkeypatch.setattr(type(store.blobs), "discard_many", discard_many)
    assert sweep(store).removed_blobs == len(gone) == 81
    for bundle, listed in parts.items():
        assert all(gone.index(bundle) < gone.index(part) for part in listed)
