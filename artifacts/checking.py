"""Checks a store: that no blob is corrupt, and that everything that is needed is there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from artifacts.documents import Document, read_document
from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidDigest, InvalidManifest
from artifacts.parallel import call_many
from artifacts.store import Artifacts

Roots = Callable[[], Iterable[str]]
"""Digests that are needed, with all that they refer to; called once the blobs were read."""


@dataclass
class Soundness:
    """The result of a check; `corrupt` blobs were set aside, and are `missing` where needed."""

    blobs: int = 0
    bytes: int = 0
    corrupt: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def check(store: Artifacts, roots: Roots, beat: Callable[[], None] = lambda: None) -> Soundness:
    """Read every blob, then look for all that the roots, tags and action records need; `beat` is
    called between blobs and may raise to end early. Raises StorageFailed.
    """
    soundness = Soundness()
    for blob in store.blobs.listing():
        beat()
        try:
            for chunk in store.blobs.open(blob.digest):
                soundness.bytes += len(chunk)
            soundness.blobs += 1
        except BlobCorrupt:
            soundness.corrupt.append(blob.digest)
        except BlobNotFound:  # collected meanwhile
            continue
    built = (manifest for _, manifest, _ in store.actions.entries())
    needed = find_reachable(store, (*roots(), *built))
    soundness.missing = sorted(digest for digest in needed if not store.blobs.has(digest))
    return soundness


def find_reachable(store: Artifacts, roots: Iterable[str]) -> set[str]:
    """The roots and all that they refer to, whether it is there or not; raises StorageFailed."""
    referrers: dict[str, list[str]] = {}
    for _, subject, digest, _ in store.references.all_referrers():
        referrers.setdefault(subject, []).append(digest)
    reached: set[str] = set()
    followed: set[str] = set()
    waiting = set(roots)
    while fresh := waiting - followed:
        reached |= fresh
        followed |= fresh
        waiting = set()
        for digest, document in call_many(lambda digest: _document(store, digest), fresh):
            waiting.update(referrers.get(digest, ()))
            if document:
                reached.update(blob.digest for blob in document.blobs)
                waiting.update(child.digest for child in document.children)
                waiting.update([document.subject.digest] if document.subject else ())
    return reached


def _document(store: Artifacts, digest: str) -> Document | None:
    """The manifest of that digest; None for any other blob, and for one that is not there."""
    try:
        return read_document(store.blobs, digest)
    except (BlobNotFound, BlobCorrupt, InvalidManifest, InvalidDigest):
        return None
