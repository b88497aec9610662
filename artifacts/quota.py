"""A blob store with a quota, and with a reserve that its disk keeps free."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from artifacts.errors import StoreFull
from artifacts.files import MAKE_ROOM
from artifacts.store import Blob, BlobStore, ListedBlob

STEP = 16 << 20
"""Bytes of a large blob that are counted at a time."""


class Usage(Protocol):
    """How much all the store's writers together have stored; an estimate is enough."""

    def take(self, amount: int, most: int) -> bool:
        """Count bytes that are about to be stored, unless that makes more than `most` in all;
        whether they were. No two writers get the same room.
        """

    def add(self, amount: int) -> None:
        """Count bytes, or give some back (a negative amount)."""


@dataclass(frozen=True)
class LimitedStore:
    """The blob store `inner`, which takes nothing that would exceed `quota` bytes in all (None: no
    limit) or leave fewer than `reserve` bytes free: `put` raises StoreFull, with nothing stored.
    """

    inner: BlobStore
    usage: Usage
    quota: int | None = None
    reserve: int = 0

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        """Implement BlobStore.put."""
        chunks = [data] if isinstance(data, bytes) else data
        share, stored = _Share(self), 0
        try:
            blob = self.inner.put(share.meter(chunks), expected)
            stored = blob.size if blob.new else 0
        finally:
            share.settle(stored)
        return blob

    def has(self, digest: str) -> bool:
        """Implement BlobStore.has."""
        return self.inner.has(digest)

    def touch(self, digest: str) -> bool:
        """Implement BlobStore.touch."""
        return self.inner.touch(digest)

    def size(self, digest: str) -> int:
        """Implement BlobStore.size."""
        return self.inner.size(digest)

    def read(self, digest: str) -> bytes:
        """Implement BlobStore.read."""
        return self.inner.read(digest)

    def open(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Implement BlobStore.open."""
        return self.inner.open(digest, start, end)

    def listing(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.listing."""
        return self.inner.listing()

    def discard(self, digest: str, before: float) -> bool:
        """Implement BlobStore.discard."""
        return self.inner.discard(digest, before)

    def discard_many(self, digests: Sequence[str], before: float) -> set[str]:
        """Implement BlobStore.discard_many."""
        return self.inner.discard_many(digests, before)

    def presign(self, digest: str, seconds: float) -> str | None:
        """Implement BlobStore.presign."""
        return self.inner.presign(digest, seconds)

    def last_touch(self, digest: str) -> float | None:
        """Implement BlobStore.last_touch."""
        return self.inner.last_touch(digest)

    def quarantine(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.quarantine."""
        return self.inner.quarantine()

    def clear_quarantine(self, before: float) -> int:
        """Implement BlobStore.clear_quarantine."""
        return self.inner.clear_quarantine(before)

    def free(self) -> int | None:
        """Implement BlobStore.free."""
        return self.inner.free()


@dataclass
class _Share:
    """The room that one blob takes of the store while it is written."""

    store: LimitedStore
    _taken: int = 0

    def meter(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks, each once there is room for it; raises StoreFull."""
        size = 0
        for chunk in chunks:
            size += len(chunk)
            # Looked at anew for each chunk: others write at the same time.
            free = self.store.inner.free()
            if free is not None and free - len(chunk) < self.store.reserve:
                raise _no_room()
            self._take(size)
            yield chunk

    def _take(self, size: int) -> None:
        quota, missing = self.store.quota, size - self._taken
        if quota is None or missing <= 0:
            return
        ahead = STEP if size > STEP else 0
        for amount in dict.fromkeys((missing + ahead, missing)):
            if self.store.usage.take(amount, quota):
                self._taken += amount
                return
        raise _no_room()

    def settle(self, stored: int) -> None:
        """Count what was stored in place of what was taken."""
        if self.store.quota is not None and stored != self._taken:
            self.store.usage.add(stored - self._taken)


def _no_room() -> StoreFull:
    return StoreFull("the store has no room left", hint=MAKE_ROOM)
