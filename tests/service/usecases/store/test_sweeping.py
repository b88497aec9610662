"""Several processes that remove what one has marked."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from artifacts.documents import BUNDLE, EMPTY, MANIFEST, Descriptor, is_complete, manifest_bytes
from artifacts.errors import StorageFailed
from relaxd.contract.canonical import digest_of
from service.db.schema import TENANTS_DELETED, blobs, counters, edges, garbage, holdings, sweeps
from service.identity import DEFAULT
from service.usecases import chores
from service.usecases.store import catalog, collecting, pinning, store_audit, sweeping
from service.usecases.store import holdings as rights

ROOT = Path(__file__).parents[4]
LOST, NEEDED, LAYERS, PAGES = 25, 5, 3, 3
LEASE_S = 2.0
OLD_S = 1000.0


@pytest.fixture
def core(core, monkeypatch):
    monkeypatch.setattr(chores, "LEASE_S", LEASE_S)
    monkeypatch.setattr(sweeping, "PAGE", 10)
    settings = core.settings.model_copy(update={"gc_grace_s": 120, "job_timeout_s": 1})
    return replace(core, clock=time.time, settings=settings)


def push(core, name):
    """A manifest over layers of its own and one that all have, which the default tenant holds."""
    store = rights.view(core, DEFAULT).blobs
    contents = [b"shared", *(f"{name} {number}".encode() for number in range(LAYERS))]
    layers = [Descriptor("application/octet-stream", store.put(c).digest, len(c)) for c in contents]
    empty = Descriptor(EMPTY, store.put(b"{}").digest, 2)
    return store.put(manifest_bytes(BUNDLE, empty, layers, {"name": name})).digest


def age(core):
    """Everything in the store was touched long ago."""
    then = time.time() - OLD_S
    for path in (core.settings.data_dir / "store" / "blobs").rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))
    with core.writing() as tx:
        tx.connection.execute(blobs.update().values(touched_at=then))


def count(core, table, *where):
    with core.reading() as tx:
        return tx.connection.execute(select(func.count()).select_from(table).where(*where)).scalar()


def mark(core):
    """Begin a collection, and leave it to others."""
    catalog.read_new(core, lambda: None)
    limits = replace(collecting._limits(core), began_at=core.clock() + 1)
    sweeping.begin(core, limits, lambda: None)


def start(core, pages):
    environment = {**os.environ, **core.settings.environment(), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.service.sweeping_process", str(pages), str(sweeping.MANY)],
        env=environment,
    )


def test_another_worker_goes_on_where_one_was_killed(core, monkeypatch):
    needed = [push(core, f"kept {number}") for number in range(NEEDED)]
    lost = [push(core, f"lost {number}") for number in range(LOST)]
    for digest in needed:
        pinning.pin(core, digest, who="me", why="")
    age(core)
    mark(core)
    marked = count(core, garbage)
    assert marked == LOST * (LAYERS + 1)
    assert start(core, PAGES).wait(120) == -9
    assert 0 < count(core, garbage, garbage.c.is_removed) < marked
    gone = [digest for digest in lost if not core.store.blobs.has(digest)]
    assert len(gone) < LOST
    again, stop = [], threading.Event()

    def upload():
        """Beside the sweep: a bundle that is marked, and a layer of another one."""
        again.append(push(core, f"lost {LOST - 1}"))
        again.append(rights.view(core, DEFAULT).blobs.put(b"lost 0 0").digest)
        while not stop.is_set():
            push(core, f"new {len(again)}")
            again.append("")

    uploading = threading.Thread(target=upload)
    uploading.start()
    while len(again) < 2:
        time.sleep(0.01)
    done = collecting.run(core)
    stop.set()
    uploading.join()
    for digest in (*needed, again[0]):
        assert is_complete(core.store.blobs, digest), "what is needed went"
        assert rights.is_held(core, DEFAULT, digest)
    assert again[0] == lost[-1]
    assert core.store.blobs.has(digest_of(b"lost 0 0"))
    # What was put again may have been removed before.
    assert marked - (LAYERS + 1) - 1 <= done.removed_blobs <= marked
    assert not set(lost[1:-1]) - set(done.removed)
    assert [count(core, table) for table in (garbage, sweeps)] == [0, 0]
    store_audit.compare(core, lambda: None)
    known = {blob.digest for blob in core.store.blobs.listing()}
    with core.reading() as tx:
        assert set(tx.connection.scalars(select(blobs.c.digest))) == known
        assert set(tx.connection.scalars(select(edges.c.parent))) <= known
        assert set(tx.connection.scalars(select(holdings.c.digest))) == known


def test_two_processes_share_the_shards(core, monkeypatch):
    monkeypatch.setattr(sweeping, "MANY", 0)
    for number in range(LOST // 2):
        push(core, f"lost {number}")
    age(core)
    mark(core)
    marked = count(core, garbage)
    other = start(core, 10**6)
    while other.poll() is None and not count(core, garbage, garbage.c.is_removed):
        time.sleep(0.02)
    done = collecting.run(core)
    assert other.wait(120) == 0
    assert done.removed_blobs == len(set(done.removed)) == marked
    assert list(core.store.blobs.listing()) == []


def test_pages_are_full_where_few_blobs_are_marked(core, monkeypatch):
    for number in range(LOST):
        push(core, f"lost {number}")
    age(core)
    mark(core)
    pages, real = [], core.store.blobs.discard_many

    def discard_many(digests, before):
        pages.append(len(digests))
        return real(digests, before)

    monkeypatch.setattr(core.store.blobs, "discard_many", discard_many)
    collecting.run(core)
    assert sum(pages) == LOST * (LAYERS + 1) + 2
    # A round ends with a short page, and there are two: layers that come before their manifest.
    assert sum(size < sweeping.PAGE for size in pages) <= 2
    assert list(core.store.blobs.listing()) == []


@pytest.mark.parametrize(("many", "shards"), [(52, 1), (50, 2), (25, 4), (4, 16), (0, 256)])
def test_a_shard_has_as_many_blobs_as_make_full_pages(core, monkeypatch, many, shards):
    monkeypatch.setattr(sweeping, "MANY", many)
    digests = [digest_of(f"{n}".encode()) for n in range(100)]
    removed = [f"sha256:{n:02x}{'0' * 62}" for n in (0, 1)]
    with core.writing() as tx:
        for digest in [*digests, *removed]:
            is_removed = True if digest in removed else None
            row = {"digest": digest, "size": 1, "is_removed": is_removed}
            tx.connection.execute(garbage.insert().values(**row))
    chosen = sweeping._shards(core)
    width = 256 // shards
    assert {len(shard) for shard in chosen} == {width}
    begun = {int(digest[7:9], 16) for digest in digests}
    assert {prefix for shard in chosen for prefix in shard} == {
        f"{n:02x}" for n in range(256) if n // width in {b // width for b in begun}
    }


def test_a_blob_without_a_row_stays_until_an_audit_has_seen_it(core):
    stray = core.store.blobs.put(b"stray").digest
    age(core)
    store_audit.run(core, lambda: None)
    unseen = core.store.blobs.put(b"unseen").digest
    age(core)
    assert not store_audit.is_due(core)
    assert collecting.run(core).removed == (stray,)
    core = replace(core, clock=lambda: time.time() + 130)
    assert store_audit.is_due(core)
    assert collecting.run(core).removed == (unseen,)


def test_a_referrer_goes_with_the_last_tenant_that_may_read_it(core):
    subject = push(core, "kept")
    pinning.pin(core, subject, who="me", why="")
    store, referrers = rights.view(core, DEFAULT).blobs, []
    for name in ("ours", "theirs"):
        empty = Descriptor(EMPTY, store.put(b"{}").digest, 2)
        about = Descriptor(MANIFEST, subject, store.size(subject))
        layers = [Descriptor(EMPTY, store.put(name.encode()).digest, len(name))]
        manifest = store.put(manifest_bytes(BUNDLE, empty, layers, {}, about)).digest
        core.store.references.refer("team/models", subject, manifest)
        referrers.append(manifest)
    age(core)
    assert collecting.run(core).removed == ()
    theirs = holdings.c.digest.in_([referrers[1], digest_of(b"theirs")])
    with core.writing() as tx:
        tx.connection.execute(holdings.delete().where(theirs))
        tx.connection.execute(counters.insert().values(name=TENANTS_DELETED, value=1))
    assert set(collecting.run(core).removed) == {referrers[1], digest_of(b"theirs")}


def test_an_audit_that_fails_is_due_again(core, monkeypatch):
    def fail(tx, rows):
        raise StorageFailed("away", hint="")

    core.store.references.tag("team/models", "v1", push(core, "one"))
    with monkeypatch.context() as patched:
        patched.setattr(store_audit, "_write_records", fail)
        with pytest.raises(StorageFailed):
            collecting.run(core)
    assert store_audit.is_due(core)
    collecting.run(core)
    assert not store_audit.is_due(core)


def test_an_audit_forgets_rows_of_blobs_that_are_gone(core):
    digest = push(core, "one")
    core.store.blobs.discard(digest, time.time() + 10)
    store_audit.run(core, lambda: None)
    with core.reading() as tx:
        known = set(tx.connection.scalars(select(blobs.c.digest)))
        assert not tx.connection.scalars(
            select(edges.c.parent).where(edges.c.parent == digest)
        ).all()
    assert known == {blob.digest for blob in core.store.blobs.listing()}
