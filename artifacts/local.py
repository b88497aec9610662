"""The artifact store on a local file system.

A blob's modification time is when it was last put or touched. Every shard has a lock: `put` and
`touch` share it, `discard` has it alone while it compares that time and removes the file. So a
touch comes either before the comparison, which then spares the blob, or after the removal, and
then finds nothing.
"""

import fcntl
import hashlib
import io
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from artifacts.errors import BlobNotFound, DigestMismatch
from artifacts.files import (
    commit,
    ensure_folder,
    keep_pace,
    storage_errors,
    sweep,
    temporary,
)
from artifacts.parallel import call_many
from artifacts.reading import VerifyingReader
from artifacts.store import CHUNK, FRESH_S, Blob, Listed, ListedBlob, Record, hex_of
from relaxd.contract.canonical import digest_of


class LocalStore(VerifyingReader):
    """A BlobStore in a folder: `blobs/sha256/ab/<hex>`, with `tmp` for what is being written and
    `quarantine`.

    Safe for any number of processes on one machine. Opening it sweeps what crashed writers left.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._blobs, self._tmp, self._quarantine = (
            root / "blobs" / "sha256",
            root / "tmp",
            root / "quarantine",
        )
        with storage_errors(f"cannot open the store {root}"):
            for folder in (self._blobs, self._tmp, self._quarantine):
                ensure_folder(folder.resolve())
            sweep(self._tmp)

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        """Implement BlobStore.put; a blob that is there with this content is touched, and a
        corrupt one is replaced.
        """
        if expected is not None:
            hex_of(expected)
        if isinstance(data, bytes):
            digest = digest_of(data)
            if expected in (None, digest) and self._keeps(digest, io.BytesIO(data)):
                return Blob(digest, len(data), new=False)
        content, size = hashlib.sha256(), 0
        with temporary(self._tmp) as file:
            for chunk in [data] if isinstance(data, bytes) else data:
                content.update(chunk)
                size += len(chunk)
                with storage_errors(f"cannot write to {self._tmp}"):
                    file.write(chunk)
                keep_pace(file, size - len(chunk), size)
            digest = f"sha256:{content.hexdigest()}"
            if expected not in (None, digest):
                raise DigestMismatch(str(expected), digest)
            with storage_errors(f"cannot write to {self._tmp}"):
                file.flush()
                with open(file.name, "rb") as written:
                    is_stored = self._keeps(digest, written)
            new = not is_stored and self._commit(file, self._path(digest))
        return Blob(digest, size, new)

    def _keeps(self, digest: str, content: BinaryIO) -> bool:
        """True if the blob is there with this content, and touched: nothing has to be written."""
        try:
            with self._open(digest) as stored:
                same = _are_equal(stored, content)
        except (BlobNotFound, OSError):  # what cannot be read is replaced
            return False
        return same and self.touch(digest)

    def _commit(self, file: BinaryIO, path: Path) -> bool:
        """Name the file; whether there was none of that name."""
        with storage_errors(f"cannot write {path}"):
            ensure_folder(path.parent)
            with _locked(path.parent, fcntl.LOCK_SH):
                new = not path.exists()
                _renew(file.fileno())
                commit(file, path)
        return new

    def has(self, digest: str) -> bool:
        """Implement BlobStore.has."""
        path = self._path(digest)
        with storage_errors(f"cannot look up {digest}"):
            return path.is_file()

    def size(self, digest: str) -> int:
        """Implement BlobStore.size."""
        return self._stat(digest).st_size

    def touch(self, digest: str) -> bool:
        """Implement BlobStore.touch."""
        path = self._path(digest)
        try:
            with (
                storage_errors(f"cannot touch {digest}", absence=False),
                _locked(path.parent, fcntl.LOCK_SH),
            ):
                if path.stat().st_mtime < time.time() - FRESH_S:
                    before = self._version(digest)
                    _renew(path)
                    self._carry_over(digest, before)
        except (FileNotFoundError, BlobNotFound):
            return False
        return True

    def listing(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.listing."""
        with storage_errors("cannot list the blobs"):
            for shard in self._blobs.iterdir():
                for entry in os.scandir(shard):
                    with suppress(FileNotFoundError):
                        status = entry.stat()
                        yield ListedBlob(f"sha256:{entry.name}", status.st_size, status.st_mtime)

    def discard(self, digest: str, before: float) -> bool:
        """Implement BlobStore.discard."""
        path = self._path(digest)
        try:
            with (
                storage_errors(f"cannot remove {digest}", absence=False),
                _locked(path.parent, fcntl.LOCK_EX),
            ):
                if path.stat().st_mtime >= before:
                    return False
                path.unlink()
        except FileNotFoundError:
            return True
        return True

    def discard_many(self, digests: Sequence[str], before: float) -> set[str]:
        """Implement BlobStore.discard_many."""
        tried = call_many(lambda digest: self.discard(digest, before), digests)
        return {digest for digest, gone in tried if gone}

    def presign(self, digest: str, seconds: float) -> str | None:
        """Implement BlobStore.presign: a folder has no URLs."""
        return None

    def last_touch(self, digest: str) -> float | None:
        """Implement BlobStore.last_touch."""
        try:
            return self._stat(digest).st_mtime
        except BlobNotFound:
            return None

    def quarantine(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.quarantine."""
        with storage_errors("cannot list the quarantine"):
            for entry in os.scandir(self._quarantine):
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    digest = f"sha256:{entry.name.partition('-')[0]}"
                    yield ListedBlob(digest, status.st_size, status.st_mtime)

    def clear_quarantine(self, before: float) -> int:
        """Implement BlobStore.clear_quarantine."""
        removed = 0
        with storage_errors("cannot clear the quarantine"):
            for path in self._quarantine.iterdir():
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < before:
                        path.unlink()
                        removed += 1
        return removed

    def free(self) -> int | None:
        """Implement BlobStore.free."""
        with storage_errors("cannot look at the disk"):
            return shutil.disk_usage(self._blobs).free

    def _path(self, digest: str) -> Path:
        name = hex_of(digest)
        return self._blobs / name[:2] / name

    def _stat(self, digest: str) -> os.stat_result:
        path = self._path(digest)
        try:
            with storage_errors(f"cannot look up {digest}", absence=False):
                return path.stat()
        except FileNotFoundError:
            raise BlobNotFound(digest) from None

    def _version(self, digest: str) -> str:
        status = self._stat(digest)
        return f"{status.st_ino}.{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_size}"

    def _chunks(self, digest: str, start: int, end: int | None) -> Iterator[bytes]:
        with storage_errors(f"cannot read {digest}"), self._open(digest) as file:
            file.seek(start)
            left = os.fstat(file.fileno()).st_size - start if end is None else end - start
            while left > 0 and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    def _open(self, digest: str) -> BinaryIO:
        try:
            with storage_errors(f"cannot read {digest}", absence=False):
                return open(self._path(digest), "rb")
        except FileNotFoundError:
            raise BlobNotFound(digest) from None

    def _set_aside(self, digest: str, version: str) -> None:
        aside = self._quarantine / f"{hex_of(digest)}-{uuid.uuid4().hex[:8]}"
        try:
            with storage_errors(f"cannot quarantine {digest}", absence=False):
                if self._version(digest) == version:
                    os.rename(self._path(digest), aside)
                    _renew(aside)
        except (BlobNotFound, FileNotFoundError):  # another reader has set it aside
            return


class LocalRecords:
    """Records as files under `records/`, for any number of processes on one machine."""

    def __init__(self, root: Path) -> None:
        self._records, self._tmp, self._lock = root / "records", root / "tmp", root / "records.lock"
        with storage_errors(f"cannot open the store {root}"):
            for folder in (self._records, self._tmp):
                ensure_folder(folder.resolve())
            self._lock.touch()

    def get(self, name: str) -> Record | None:
        """Implement Records.get; the version is the text itself."""
        try:
            with storage_errors(f"cannot read the record {name}", absence=False):
                value = (self._records / name).read_text(errors="replace")
        except FileNotFoundError:
            return None
        return Record(value, version=value)

    def swap(self, name: str, value: str, current: Record | None) -> bool:
        """Implement Records.swap."""
        with self._alone(f"cannot write the record {name}"):
            if self.get(name) != current:
                return False
            self._write(name, value)
            return True

    def set(self, name: str, value: str) -> None:
        """Implement Records.set."""
        with self._alone(f"cannot write the record {name}"):
            self._write(name, value)

    def _write(self, name: str, value: str) -> None:
        with temporary(self._tmp) as file:
            file.write(value.encode())
            commit(file, self._records / name)

    def names(self, folder: str) -> list[str]:
        """Implement Records.names."""
        try:
            with storage_errors(f"cannot list the records in {folder}", absence=False):
                return sorted(
                    path.name for path in (self._records / folder).iterdir() if path.is_file()
                )
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Iterator[Listed]:
        """Implement Records.walk."""
        with storage_errors(f"cannot list the records in {folder}"):
            for parent, _, names in os.walk(self._records / folder):
                for path in (Path(parent, name) for name in names):
                    with suppress(FileNotFoundError):
                        written = path.stat().st_mtime
                        yield Listed(path.relative_to(self._records).as_posix(), written)

    def remove(self, name: str, value: str) -> bool:
        """Implement Records.remove."""
        with self._alone(f"cannot remove the record {name}"):
            current = self.get(name)
            if current is None or current.value != value:
                return False
            (self._records / name).unlink()
            return True

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        with storage_errors(what), open(self._lock, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Hold the folder's lock; raises FileNotFoundError where there is no such folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _are_equal(first: BinaryIO, second: BinaryIO) -> bool:
    """True if two files have the same content from here on."""
    while (part := first.read(CHUNK)) == second.read(CHUNK):
        if not part:
            return True
    return False


def _renew(file: Path | int) -> None:
    now = time.time()
    os.utime(file, (now, now))
