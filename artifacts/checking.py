"""Reads a whole store: whether every blob is sound, and everything that is needed is there."""

from collections.abc import Callable
from dataclasses import dataclass, field

from artifacts.collection import Roots, reached
from artifacts.errors import BlobCorrupt, BlobNotFound
from artifacts.store import Artifacts


@dataclass
class Soundness:
    """What a check found; `corrupt` blobs have been set aside, and are `missing` where needed."""

    blobs: int = 0
    bytes: int = 0
    corrupt: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def check(store: Artifacts, roots: Roots, beat: Callable[[], None] = lambda: None) -> Soundness:
    """Read every blob, then look for all that the roots, tags and action records need; `beat` is
    called between blobs and may raise to end early. Raises StorageFailed.
    """
    found = Soundness()
    for held in store.blobs.listing():
        beat()
        try:
            for chunk in store.blobs.open(held.digest):
                found.bytes += len(chunk)
            found.blobs += 1
        except BlobCorrupt:
            found.corrupt.append(held.digest)
        except BlobNotFound:  # collected meanwhile
            continue
    built = (manifest for _, manifest, _ in store.actions.entries())
    needed = reached(store, (*roots(), *built))
    found.missing = sorted(digest for digest in needed if not store.blobs.has(digest))
    return found
