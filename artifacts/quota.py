"""A blob store with a quota, and with a reserve that its disk keeps free."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from artifacts.errors import StoreFull
from artifacts.files import MAKE_ROOM
from artifacts.store import CHUNK, Blob, BlobStore, ListedBlob


class Usage(Protocol):
    """How much all the store's writers together have stored; an estimate is enough."""

    def bytes(self) -> int:
        """Bytes in the store."""

    def add(self, amount: int) -> None:
        """Count the bytes of a new blob."""


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
        blob = self.inner.put(self._metered(chunks), expected)
        if blob.new and self.quota is not None:
            self.usage.add(blob.size)
        return blob

    def put_file(self, path: Path, expected: str | None = None) -> Blob:
        """Implement BlobStore.put_file."""
        with open(path, "rb") as file:
            return self.put(iter(lambda: file.read(CHUNK), b""), expected)

    def _metered(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        room = self._room()
        for chunk in chunks:
            if room is not None:
                room -= len(chunk)
                if room < 0:
                    raise StoreFull("the store has no room left", hint=MAKE_ROOM)
            yield chunk

    def _room(self) -> int | None:
        rooms = [] if self.quota is None else [self.quota - self.usage.bytes()]
        free = self.inner.free()
        rooms += [] if free is None else [free - self.reserve]
        return min(rooms, default=None)

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

    def quarantine(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.quarantine."""
        return self.inner.quarantine()

    def clear_quarantine(self, before: float) -> int:
        """Implement BlobStore.clear_quarantine."""
        return self.inner.clear_quarantine(before)

    def free(self) -> int | None:
        """Implement BlobStore.free."""
        return self.inner.free()
