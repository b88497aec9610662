"""Interfaces of a blob store and a record store, and the parts of one artifact store."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from artifacts.errors import InvalidDigest
from relaxd.contract.canonical import is_digest

if TYPE_CHECKING:
    from artifacts.cache import ActionCache
    from artifacts.references import References

CHUNK = 1 << 20


FRESH_S = 60.0
"""Age in seconds below which a blob is not touched again; collections have to spare blobs of twice
that age.
"""


@dataclass(frozen=True)
class Blob:
    """A stored blob; `size` in bytes; `new` where the store did not hold it before."""

    digest: str
    size: int
    new: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class ListedBlob:
    """A blob as a listing shows it; `touched` is the time of its last `put` or `touch`, in seconds
    since the epoch.
    """

    digest: str
    size: int
    touched: float


@dataclass(frozen=True)
class Record:
    """A record's text, and the version to name when replacing it."""

    value: str
    version: str


class BlobStore(Protocol):
    """Immutable bytes by sha256 digest.

    A blob appears whole and durable, or not at all. Bytes that do not hash to their digest raise
    BlobCorrupt and are set aside; after that the blob is missing. Every method raises InvalidDigest
    for a malformed digest.
    """

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        """Store the bytes; raises DigestMismatch, and stores nothing, when they do not hash to
        `expected`.
        """

    def has(self, digest: str) -> bool:
        """True if the blob is there (its content is not checked)."""

    def size(self, digest: str) -> int:
        """Size in bytes; raises BlobNotFound."""

    def read(self, digest: str) -> bytes:
        """The whole content, verified; raises BlobNotFound, BlobCorrupt."""

    def open(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Chunks of bytes `start` to `end` (exclusive); the last chunk comes only once the blob has
        proved sound.
        """

    def presign(self, digest: str, seconds: float) -> str | None:
        """A URL by which whoever has it reads the blob for so many seconds, its content unchecked;
        None where the store has no such URLs. Whether the blob is there is not looked up.
        """

    def touch(self, digest: str) -> bool:
        """Do what `has` does, for a caller that is about to refer to the blob: a blob that is there
        stays for the grace period of collections. Raises StorageFailed where it is being removed.
        """

    def listing(self) -> Iterator[ListedBlob]:
        """Every blob, in no order; one that comes or goes meanwhile may be left out."""

    def discard(self, digest: str, before: float) -> bool:
        """Remove the blob unless it was put or touched at `before` or later; whether it is gone.
        No `put` or `touch` that has returned is undone.
        """

    def discard_many(self, digests: Sequence[str], before: float) -> set[str]:
        """Do what `discard` does for many blobs that do not refer to each other; those that are
        gone.
        """

    def last_touch(self, digest: str) -> float | None:
        """The time of its last `put` or `touch`, in seconds since the epoch; None for a blob that
        is not there.
        """

    def quarantine(self) -> Iterator[ListedBlob]:
        """The blobs that were set aside as corrupt, `touched` when they were; a digest may occur
        more than once.
        """

    def clear_quarantine(self, before: float) -> int:
        """Remove the blobs that were set aside before that time; how many."""

    def free(self) -> int | None:
        """Bytes that can still be written; None where there is no such figure."""


@dataclass(frozen=True)
class Listed:
    """A record as a listing shows it; `written` in seconds since the epoch."""

    name: str
    written: float


class Records(Protocol):
    """Small mutable texts by slash-separated name, each replaced atomically."""

    def get(self, name: str) -> Record | None:
        """The record, or None."""

    def swap(self, name: str, value: str, current: Record | None) -> bool:
        """Write `value` if the record is still `current` (None: still absent); whether it was
        written.
        """

    def set(self, name: str, value: str) -> None:
        """Write `value`, whatever was there."""

    def names(self, folder: str) -> list[str]:
        """Names directly inside `folder`, sorted, without the folder."""

    def walk(self, folder: str) -> Iterator[Listed]:
        """Every record below `folder`, by its whole name, in no order."""

    def remove(self, name: str, value: str) -> bool:
        """Remove the record if its text is still `value`; whether it was."""


@dataclass(frozen=True)
class Artifacts:
    """One artifact store: immutable blobs, and the two kinds of names that point at them."""

    blobs: BlobStore
    actions: "ActionCache"
    references: "References"


def put_file(blobs: BlobStore, path: Path, expected: str | None = None) -> Blob:
    """Store a file's content, as `BlobStore.put` does."""
    with open(path, "rb") as file:
        return blobs.put(iter(lambda: file.read(CHUNK), b""), expected)


def hex_of(digest: str) -> str:
    """The hex part of a digest; raises InvalidDigest, so what it returns is safe in a path."""
    if not is_digest(digest):
        raise InvalidDigest(digest)
    return digest.removeprefix("sha256:")
