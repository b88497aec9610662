"""Verified reads: the last chunk of a corrupt blob is never returned."""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator

from artifacts.errors import BlobCorrupt

REMEMBERED = 4096

LOGGER = logging.getLogger("relaxd.store")


class VerifyingReader(ABC):
    """The reading half of a BlobStore; a subclass knows where the bytes are."""

    def __init__(self) -> None:
        self._sound: dict[str, str] = {}

    def read(self, digest: str) -> bytes:
        """The whole content, verified; raises BlobNotFound, BlobCorrupt."""
        return b"".join(self.open(digest))

    def open(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Chunks of bytes `start` to `end` (exclusive); raises BlobNotFound at once, BlobCorrupt
        before the last chunk.

        A part of a blob cannot be checked by itself, so the whole is checked first, once for each
        version of it.
        """
        size = self.size(digest)
        if start == 0 and (end is None or end >= size):
            return self._verified(digest)
        if self._sound.get(digest) != self._version(digest):
            for _ in self._verified(digest):
                pass
        stop = size if end is None else min(end, size)
        if not 0 <= start <= stop:
            raise ValueError(f"bytes {start} to {end} are not within the blob's {size}")
        return self._chunks(digest, start, stop) if start < stop else iter(())

    def _verified(self, digest: str) -> Iterator[bytes]:
        version = self._version(digest)
        content, pending = hashlib.sha256(), b""
        for chunk in self._chunks(digest, 0, None):
            content.update(chunk)
            if pending:
                yield pending
            pending = chunk
        if f"sha256:{content.hexdigest()}" != digest:
            raise self._corrupt(digest, version)
        if len(self._sound) >= REMEMBERED:
            self._sound.clear()
        self._sound[digest] = version
        if pending:
            yield pending

    def _corrupt(self, digest: str, version: str) -> BlobCorrupt:
        """The error to raise for a corrupt blob, once it is out of reach."""
        self._set_aside(digest, version)
        LOGGER.error("blob %s is corrupt and has been set aside", digest)
        return BlobCorrupt(digest)

    def _carry_over(self, digest: str, before: str) -> None:
        """A blob that was sound at version `before` is so at the present one, which differs in its
        times alone.
        """
        if self._sound.get(digest) == before:
            self._sound[digest] = self._version(digest)

    @abstractmethod
    def size(self, digest: str) -> int:
        """Size in bytes; raises BlobNotFound, InvalidDigest."""

    @abstractmethod
    def _version(self, digest: str) -> str:
        """A text that changes whenever the stored object does; raises BlobNotFound."""

    @abstractmethod
    def _chunks(self, digest: str, start: int, end: int | None) -> Iterator[bytes]:
        """Stored bytes as they are; raises BlobNotFound."""

    @abstractmethod
    def _set_aside(self, digest: str, version: str) -> None:
        """Move a corrupt object out of reach, unless it has been replaced since `version`."""
