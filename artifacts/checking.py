"""Checks a store: that no blob is corrupt, and that everything that is needed is there."""

from collections.abc import Callable
from dataclasses import dataclass, field

from artifacts.collection import Roots, find_reachable
from artifacts.errors import BlobCorrupt, BlobNotFound
from artifacts.store import Artifacts


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
