"""A blob store for the length of one look: what it has answered is not asked for again."""

from typing import Any, cast

from artifacts.store import BlobStore


def once(blobs: BlobStore) -> BlobStore:
    """The store, remembering which blobs are there and what their content is; for a moment's use,
    by one thread, on small blobs.
    """
    return cast(BlobStore, _Once(blobs))


class _Once:
    """The methods of BlobStore that looks repeat; the others are the store's own."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._touched: set[str] = set()
        self._there: set[str] = set()
        self._contents: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def touch(self, digest: str) -> bool:
        if digest not in self._touched and self._blobs.touch(digest):
            self._touched.add(digest)
            self._there.add(digest)
        return digest in self._touched

    def has(self, digest: str) -> bool:
        if digest not in self._there and self._blobs.has(digest):
            self._there.add(digest)
        return digest in self._there

    def size(self, digest: str) -> int:
        if digest not in self._sizes:
            self._sizes[digest] = self._blobs.size(digest)
            self._there.add(digest)
        return self._sizes[digest]

    def read(self, digest: str) -> bytes:
        if digest not in self._contents:
            self._contents[digest] = self._blobs.read(digest)
            self._there.add(digest)
        return self._contents[digest]
