"""Collects garbage: removes the blobs that no root reaches and nobody has touched for a while.

One rule makes this safe beside uploads, pulls and builds: whoever creates a reference to a blob (a
manifest's layer, a tag, a job, a pin, an action record) first puts or touches the blob, and creates
the reference only if that succeeded. To touch a manifest is enough for what it refers to, which
steps 2 and 4 keep as long as the manifest. A collection then works in this order:

1. List all blobs; those untouched since `before` (its start less the grace period) are candidates.
2. Read the roots, and mark what they reach through manifests: config, layers, the manifests of an
   index, the subject, and referrers. Young blobs are roots too, as a manifest that nothing names
   yet may refer to older blobs.
3. Remove action records and referrers' records that point at unmarked candidates.
4. Remove unmarked candidates, each by `BlobStore.discard`, which spares a blob that was touched
   since `before`. What refers comes before what it refers to, so that no moment, nor a crash, shows
   a manifest without its layers. What a spared manifest refers to is spared too, and its records
   are written again.

A reference that was there in step 2 has marked its blobs. One that came later was preceded by a
touch, which `discard` sees, or which came after the removal and failed. That leaves whoever pauses
between touch and reference for longer than the grace period: it has to exceed the longest build.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from artifacts.documents import MAX_MANIFEST, Document, read_document
from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidDigest, InvalidManifest
from artifacts.parallel import call_many
from artifacts.store import Artifacts, BlobStore, ListedBlob

Roots = Callable[[], Iterable[str]]
"""Digests that stay, with all that they refer to; called once the candidates are known."""


@dataclass(frozen=True)
class Limits:
    """Times in seconds since the epoch: blobs touched at `before` or later stay, and so do bundles
    whose action record was written at `records_before` or later.
    """

    before: float
    records_before: float


@dataclass
class Report:
    """Counts of what a collection saw and removed; with `dry_run`, of what it would remove."""

    dry_run: bool
    blobs: int = 0
    bytes: int = 0
    removed_blobs: int = 0
    removed_bytes: int = 0
    removed_records: int = 0
    removed: list[str] = field(default_factory=list)


def collect(
    store: Artifacts,
    roots: Roots,
    limits: Limits,
    *,
    dry_run: bool = False,
    beat: Callable[[], None] = lambda: None,
) -> Report:
    """Remove what nothing needs; `beat` is called between steps and may raise to end early.

    Raises StorageFailed, and then has removed nothing that is needed.
    """
    report = Report(dry_run)
    candidates, young = _list_by_age(store.blobs, limits, report)
    marking = _Marking(store, candidates | young, beat)
    needed = list(roots())
    recorded = list(store.actions.entries())
    recent = (digest for _, digest, written in recorded if written >= limits.records_before)
    marking.reach([*needed, *recent, *young])
    garbage = {digest: size for digest, size in candidates.items() if digest not in marking.reached}
    _Sweep(store, marking, garbage, limits, report, beat).run(recorded)
    return report


def find_reachable(store: Artifacts, roots: Iterable[str]) -> set[str]:
    """The roots and all that they refer to, whether it is there or not; raises StorageFailed."""
    marking = _Marking(store, {blob.digest: blob.size for blob in store.blobs.listing()})
    marking.reach(roots)
    return marking.reached


def _list_by_age(
    blobs: BlobStore, limits: Limits, report: Report
) -> tuple[dict[str, int], dict[str, int]]:
    """Sizes of old blobs, and of young ones."""
    old: dict[str, int] = {}
    young: dict[str, int] = {}
    for blob in blobs.listing():
        _count(report, blob)
        (old if blob.touched < limits.before else young)[blob.digest] = blob.size
    return old, young


def _count(report: Report, blob: ListedBlob) -> None:
    report.blobs += 1
    report.bytes += blob.size


class _Marking:
    """The blobs that are reachable from the roots, and what each manifest refers to."""

    def __init__(
        self, store: Artifacts, sizes: dict[str, int], beat: Callable[[], None] = lambda: None
    ) -> None:
        self._blobs = store.blobs
        self._beat = beat
        self._sizes = sizes
        self.reached: set[str] = set()
        self._followed: set[str] = set()
        self._referrers: dict[str, list[str]] = {}
        for _, subject, digest, _ in store.references.all_referrers():
            self._referrers.setdefault(subject, []).append(digest)

    def reach(self, digests: Iterable[str]) -> None:
        """Mark the blobs and, of those that are manifests, all that belongs to them: what the
        first ones name is read after them, all of it at once.
        """
        waiting = set(digests)
        while fresh := waiting - self._followed:
            self.reached |= fresh
            self._followed |= fresh
            waiting = set()
            for digest, document in call_many(self.document, fresh):
                self._beat()
                waiting.update(self._referrers.get(digest, ()))
                if document:
                    self.reached.update(blob.digest for blob in document.blobs)
                    waiting.update(_manifests(document))

    def document(self, digest: str) -> Document | None:
        """The manifest of that digest; None for any other blob, and for one that is not there."""
        if self._sizes.get(digest, 0) > MAX_MANIFEST:
            return None
        try:
            return read_document(self._blobs, digest)
        except (BlobNotFound, BlobCorrupt, InvalidManifest, InvalidDigest):
            return None


def _manifests(document: Document) -> list[str]:
    subject = [document.subject.digest] if document.subject else []
    return [*(child.digest for child in document.children), *subject]


class _Sweep:
    """The removal of `garbage`, sizes by digest."""

    def __init__(
        self,
        store: Artifacts,
        marking: _Marking,
        garbage: dict[str, int],
        limits: Limits,
        report: Report,
        beat: Callable[[], None],
    ) -> None:
        self._store = store
        self._marking = marking
        self._garbage = garbage
        self._limits = limits
        self._report = report
        self._beat = beat
        self._restore: dict[str, list[Callable[[], object]]] = {}

    def run(self, recorded: Iterable[tuple[str, str, float]]) -> None:
        """Remove the records, then the blobs; `recorded` are those of the action cache, as they
        were once the candidates were known.
        """
        self._forget_actions(recorded)
        self._forget_referrers()
        edges = dict(call_many(self._edges, self._garbage))
        spared: set[str] = set()

        def discard(digest: str) -> bool:
            return digest not in spared and (
                self._report.dry_run or self._store.blobs.discard(digest, self._limits.before)
            )

        for level in _levels(edges):
            for digest, is_removed in call_many(discard, level):
                self._beat()
                if is_removed:
                    self._note(digest)
                    continue
                spared |= {digest, *edges[digest]}
                for write_again in self._restore.get(digest, ()):
                    write_again()

    def _note(self, digest: str) -> None:
        self._report.removed.append(digest)
        self._report.removed_blobs += 1
        self._report.removed_bytes += self._garbage[digest]

    def _forget_actions(self, recorded: Iterable[tuple[str, str, float]]) -> None:
        actions = self._store.actions
        for key, manifest, written in recorded:
            if not self._is_lost(manifest) or written >= self._limits.records_before:
                continue
            self._report.removed_records += 1
            if not self._report.dry_run and actions.forget(key, manifest):
                self._keep_ready(manifest, partial(actions.put, key, manifest))

    def _forget_referrers(self) -> None:
        references = self._store.references
        for repository, subject, digest, written in list(references.all_referrers()):
            if not self._is_lost(digest) or written >= self._limits.before:
                continue
            self._report.removed_records += 1
            if not self._report.dry_run:
                references.forget(repository, subject, digest)
                references.forget_descriptor(digest)
                self._keep_ready(digest, partial(references.refer, repository, subject, digest))

    def _keep_ready(self, digest: str, write_again: Callable[[], object]) -> None:
        """Prepare to undo the removal of a record: whoever wrote it again before the removal has
        touched the blob before.
        """
        self._restore.setdefault(digest, []).append(write_again)
        if digest not in self._garbage and self._store.blobs.has(digest):
            write_again()

    def _is_lost(self, digest: str) -> bool:
        return digest in self._garbage or not (
            digest in self._marking.reached or self._store.blobs.has(digest)
        )

    def _edges(self, digest: str) -> list[str]:
        document = self._marking.document(digest)
        if document is None:
            return []
        listed = {blob.digest for blob in document.blobs} | set(_manifests(document))
        return [target for target in listed if target in self._garbage]


def _levels(edges: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """All blobs, by what each refers to: first those that nothing refers to, then those to which
    only earlier ones do.
    """
    count = Counter(target for targets in edges.values() for target in targets)
    level = [digest for digest in edges if not count[digest]]
    while level:
        yield level
        later = []
        for target in (target for digest in level for target in edges[digest]):
            count[target] -= 1
            if not count[target]:
                later.append(target)
        level = later
