"""The artifact store on a local file system."""

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from artifacts.errors import BlobNotFound, DigestMismatch
from artifacts.files import commit, ensure_folder, storage_errors, sweep, temporary
from artifacts.reading import VerifyingReader
from artifacts.store import CHUNK, Blob, Record, hex_of


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
        """As BlobStore.put; replaces a blob that is there, which heals one that has gone bad."""
        if expected is not None:
            hex_of(expected)
        content, size = hashlib.sha256(), 0
        with temporary(self._tmp) as file:
            for chunk in [data] if isinstance(data, bytes) else data:
                content.update(chunk)
                size += len(chunk)
                with storage_errors(f"cannot write to {self._tmp}"):
                    file.write(chunk)
            digest = f"sha256:{content.hexdigest()}"
            if expected not in (None, digest):
                raise DigestMismatch(str(expected), digest)
            commit(file, self._path(digest))
        return Blob(digest, size)

    def put_file(self, path: Path, expected: str | None = None) -> Blob:
        """As BlobStore.put_file."""
        with open(path, "rb") as file:
            return self.put(iter(lambda: file.read(CHUNK), b""), expected)

    def has(self, digest: str) -> bool:
        """As BlobStore.has."""
        return self._path(digest).is_file()

    def size(self, digest: str) -> int:
        """As BlobStore.size."""
        return self._stat(digest).st_size

    def delete(self, digest: str) -> None:
        """As BlobStore.delete."""
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        name = hex_of(digest)
        return self._blobs / name[:2] / name

    def _stat(self, digest: str) -> os.stat_result:
        try:
            return self._path(digest).stat()
        except FileNotFoundError:
            raise BlobNotFound(digest) from None

    def _version(self, digest: str) -> str:
        found = self._stat(digest)
        return f"{found.st_ino}.{found.st_mtime_ns}.{found.st_ctime_ns}.{found.st_size}"

    def _chunks(self, digest: str, start: int, end: int | None) -> Iterator[bytes]:
        with storage_errors(f"cannot read {digest}"), self._open(digest) as file:
            file.seek(start)
            left = os.fstat(file.fileno()).st_size - start if end is None else end - start
            while left > 0 and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    def _open(self, digest: str) -> BinaryIO:
        try:
            return open(self._path(digest), "rb")
        except FileNotFoundError:
            raise BlobNotFound(digest) from None

    def _set_aside(self, digest: str, version: str) -> None:
        try:
            if self._version(digest) == version:
                os.rename(
                    self._path(digest),
                    self._quarantine / f"{hex_of(digest)}-{uuid.uuid4().hex[:8]}",
                )
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
        """As Records.get; the version is the text itself."""
        try:
            value = (self._records / name).read_text()
        except FileNotFoundError:
            return None
        return Record(value, version=value)

    def swap(self, name: str, value: str, current: Record | None) -> bool:
        """As Records.swap."""
        with open(self._lock, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.get(name) != current:
                return False
            self.set(name, value)
            return True

    def set(self, name: str, value: str) -> None:
        """As Records.set."""
        with temporary(self._tmp) as file:
            file.write(value.encode())
            commit(file, self._records / name)

    def names(self, folder: str) -> list[str]:
        """As Records.names."""
        try:
            return sorted(
                path.name for path in (self._records / folder).iterdir() if path.is_file()
            )
        except FileNotFoundError:
            return []
