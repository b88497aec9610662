"""A service whose garbage collections never end, beside uploads, pulls, pins and builds, one step
at a time in the order of a seed.
"""

import os
import threading
from collections import Counter

import pytest

from artifacts import open_store
from artifacts.cache import ActionCache
from artifacts.documents import BUNDLE, EMPTY, Descriptor, is_complete, keep, manifest_bytes, parse
from artifacts.errors import BlobNotFound, StorageFailed
from artifacts.local import LocalRecords
from artifacts.references import References
from artifacts.store import Artifacts
from relaxd.contract.canonical import digest_of
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.api.oci_errors import RegistryError
from service.api.oci_manifests import _push
from service.core import Core
from service.db.engine import Database
from service.db.upgrade import upgrade
from service.errors import UnknownModel, UnknownPin
from service.jobs import Jobs
from service.settings import Settings
from service.usecases.builds import claiming
from service.usecases.store import collecting, pinning, sweeping
from service.workers.runner import Runner
from service.workers.scratch import Workshop
from tests.service.fakes import FakeCompiler, FakeDoorbell
from tests.support.interleaving import Interleaving, Pausing, PausingObstore

GRACE_S = 4000
RETENTION_S = 2000
PAUSES = 600
"""Steps between two collections, at the most."""
NAME = "team/models"
CALLING = (
    "artifacts.local",
    "artifacts.remote",
    "service.usecases.store.catalog",
    "service.usecases.store.holdings",
    "service.usecases.store.store_audit",
    "service.usecases.store.sweeping",
)
"""Modules that call the store in threads of their own."""
RETRYABLE = (StorageFailed, RegistryError, UnknownModel, BlobNotFound, UnknownPin)


def paused_store(kind, folder, steps, monkeypatch) -> Artifacts:
    """The store, whose every step lets others go on, at the interleaving's time."""
    monkeypatch.setattr(f"artifacts.{kind}.time", steps)
    monkeypatch.setattr("service.usecases.store.sweeping.time", steps)
    monkeypatch.setattr("service.usecases.store.sweeping.random", steps.random)
    for module in CALLING:  # each step of what is done many at a time is one of the interleaving
        monkeypatch.setattr(f"{module}.call_many", call_each)
    if kind == "remote":
        monkeypatch.setattr("artifacts.remote.obstore", PausingObstore(steps))
        return open_store("memory://")
    real = LocalRecords._write

    def write(records, name, value):
        real(records, name, value)
        os.utime(records._records / name, (steps.now, steps.now))

    monkeypatch.setattr(LocalRecords, "_write", write)
    plain = open_store(folder)
    blobs = Pausing(plain.blobs, steps)
    records = Pausing(LocalRecords(folder), steps)
    return Artifacts(
        blobs, ActionCache(records, lambda digest: keep(blobs, digest)), References(records)
    )


def call_each(call, items):
    """`artifacts.parallel.call_many` in the thread that asks for it."""
    return ((item, call(item)) for item in list(items))


class World:
    """One service, and what its clients do to it."""

    def __init__(self, core, steps, folder, operations):
        self.core, self.steps, self.jobs = core, steps, Jobs(core)
        self.workshop = Workshop(folder / "work", "worker")
        self.runner = Runner(core, self.workshop, threading.Event(), lambda *_: None)
        self.left = operations
        self.done = Counter()

    @property
    def blobs(self):
        return self.core.store.blobs

    def client(self):
        chances = ["push", "push", "pull", "pull", "build", "build", "pin"]
        while self.left > 0:
            self.left -= 1
            kind = self.steps.random.choice(chances)
            try:
                getattr(self, kind)()
                self.done[kind] += 1
            except RETRYABLE:
                self.done[f"{kind} refused"] += 1

    def upload(self, data):
        """Upload as clients do: only what is not there is sent."""
        digest = digest_of(data)
        if not self.blobs.touch(digest):
            self.blobs.put(data)
        return Descriptor("application/octet-stream", digest, len(data))

    def push(self):
        pick = self.steps.random
        layers = [self.upload(b"layer %d" % pick.randrange(30)) for _ in range(pick.randint(1, 4))]
        self.upload(b"{}")
        manifest = manifest_bytes(BUNDLE, Descriptor(EMPTY, digest_of(b"{}"), 2), layers, {})
        tag = pick.choice([digest_of(manifest), "v1", "v2"])
        _push(self.core.store, NAME, tag, "", manifest)

    def pull(self):
        digest = self.core.store.references.resolve(NAME, self.steps.random.choice(["v1", "v2"]))
        if digest is None:
            return
        if not keep(self.blobs, digest):
            # The tag has moved on; unless it moved back to what was pushed again.
            assert not self.is_named(digest) or keep(self.blobs, digest), "a tag lost its bundle"
            return
        for blob in parse(self.blobs.read(digest)).blobs:
            assert digest_of(self.blobs.read(blob.digest)) == blob.digest

    def is_named(self, digest):
        return digest in [self.core.store.references.resolve(NAME, tag) for tag in ("v1", "v2")]

    def build(self):
        pick = self.steps.random
        model = self.upload(b"model %d" % pick.randrange(8)).digest
        job = self.jobs.submit(model, CompileRequest.of(dims={"n": pick.randint(1, 3)}))
        claim = claiming.take(self.core, job.builds[0].id, "worker")
        if claim:
            self.runner.run(claim)
        (build,) = self.core_job(job.id).builds
        if build.state is State.SUCCEEDED:
            assert is_complete(self.blobs, build.artifact.digest)
        else:
            assert build.state is State.QUEUED, build.error

    def core_job(self, job_id):
        with self.core.reading() as tx:
            return tx.job(job_id)

    def pin(self):
        digest = self.core.store.references.resolve(NAME, "v1")
        if digest and self.steps.random.random() < 0.5:
            pinning.pin(self.core, digest, who="me", why="")
        elif digest:
            pinning.unpin(self.core, digest)

    def collector(self):
        while self.left > 0:
            for _ in range(self.steps.random.randrange(PAUSES)):
                self.steps.pause()
            done = collecting.run(self.core)
            self.done["collections"] += 1
            self.done["removed"] += done.removed_blobs
            self.done["expired"] += done.expired_jobs
            self.check()

    def helper(self):
        """Another process, which sweeps what the collector has marked."""
        while self.left > 0:
            self.steps.pause()
            self.done["helped"] += sweeping.help_sweep(self.core, lambda: None)

    def check(self):
        """Every manifest in the store has its layers, and every root is there; takes one step."""
        with self.steps.still():
            self._check()

    def _check(self):
        stored = {entry.digest: entry for entry in self.blobs.listing()}
        for digest in stored:
            content = self.blobs.read(digest)
            if content.startswith(b'{"annotations"') or b'"schemaVersion"' in content[:200]:
                document = parse(content)
                parts = (*document.blobs, *document.children)
                assert all(part.digest in stored for part in parts), "a dangling reference"
        for digest in collecting.roots(self.core):
            assert digest in stored, "a needed blob was removed"


def run(kind, folder, operations, seed):
    """Count operations, by kind, on a store that is `local` or `remote`; raises AssertionError
    where a reference dangles or what is needed is gone.
    """
    steps = Interleaving(seed)
    db = Database(f"sqlite:///{folder / 'jobs.sqlite'}")
    upgrade(db)
    settings = Settings(
        data_dir=folder,
        gc_grace_s=GRACE_S,
        job_timeout_s=60,
        retention_days=RETENTION_S / 86400,
        lease_s=1e9,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("service.usecases.chores.LEASE_S", 1e9)
        store = paused_store(kind, folder / "store", steps, patched)
        core = Core(settings, db, store, FakeCompiler(), FakeDoorbell(), steps.time)
        world = World(core, steps, folder, operations)
        steps.run(*[world.client] * 5, world.collector, world.helper)
        world.check()
        world.workshop.close()
    db.close()
    return world.done
