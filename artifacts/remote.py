"""The artifact store in an object store (S3, GCS, Azure, memory), through obstore.

obstore writes objects atomically and swaps them by etag, as promised here; its local backend does
not fsync, which is why the local file system has a store of its own.
"""

import hashlib
import json
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from artifacts.errors import BlobNotFound, DigestMismatch, StorageFailed
from artifacts.reading import VerifyingReader
from artifacts.store import CHUNK, Blob, Record, hex_of

IN_MEMORY = 8 << 20


def connect(url: str, **options: Any) -> Any:
    """An obstore handle for the URL; credentials come from the environment, as each cloud's own
    tools read them.

    Raises StorageFailed for a URL or settings that obstore refuses.
    """
    with _translated(f"cannot open the store {url}"):
        return from_url("memory:///" if url.startswith("memory:") else url, **options)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:  # obstore's NotFoundError is one too; it is the callers' business
        raise
    except BaseError as error:
        raise StorageFailed(
            f"{what}: {error}", hint="check the store's URL, credentials and health, then try again"
        ) from error


class ObjectStore(VerifyingReader):
    """A BlobStore in an object store: `blobs/sha256/<hex>` and `quarantine/`; takes a URL or a
    handle from `connect`.
    """

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = connect(store) if isinstance(store, str) else store

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        """As BlobStore.put; the content is spooled first, since its name is its digest."""
        if expected is not None:
            hex_of(expected)
        content, size = hashlib.sha256(), 0
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
            for chunk in [data] if isinstance(data, bytes) else data:
                content.update(chunk)
                size += len(chunk)
                spool.write(chunk)
            blob = Blob(f"sha256:{content.hexdigest()}", size)
            if expected not in (None, blob.digest):
                raise DigestMismatch(str(expected), blob.digest)
            spool.seek(0)
            if not self._is_there(blob):
                with _translated(f"cannot write {blob.digest}"):
                    obstore.put(self._store, _path(blob.digest), spool)
        return blob

    def put_file(self, path: Path, expected: str | None = None) -> Blob:
        """As BlobStore.put_file."""
        with open(path, "rb") as file:
            return self.put(iter(lambda: file.read(CHUNK), b""), expected)

    def has(self, digest: str) -> bool:
        """As BlobStore.has."""
        try:
            self._head(digest)
        except BlobNotFound:
            return False
        return True

    def size(self, digest: str) -> int:
        """As BlobStore.size."""
        return int(self._head(digest)["size"])

    def delete(self, digest: str) -> None:
        """As BlobStore.delete."""
        with _translated(f"cannot delete {digest}"):
            try:
                obstore.delete(self._store, _path(digest))
            except FileNotFoundError:
                return

    def _is_there(self, blob: Blob) -> bool:
        return self.has(blob.digest) and self.size(blob.digest) == blob.size

    def _head(self, digest: str) -> Any:
        path = _path(digest)
        with _translated(f"cannot look up {digest}"):
            try:
                return obstore.head(self._store, path)
            except FileNotFoundError:
                raise BlobNotFound(digest) from None

    def _version(self, digest: str) -> str:
        head = self._head(digest)
        return f"{head['e_tag']}.{head['last_modified']}.{head['size']}"

    def _chunks(self, digest: str, start: int, end: int | None) -> Iterator[bytes]:
        options: Any = (
            {"range": {"offset": start} if end is None else (start, end)}
            if (start, end) != (0, None)
            else None
        )
        with _translated(f"cannot read {digest}"):
            try:
                yield from obstore.get(self._store, _path(digest), options=options).stream(
                    min_chunk_size=CHUNK
                )
            except FileNotFoundError:
                raise BlobNotFound(digest) from None

    def _set_aside(self, digest: str, version: str) -> None:
        with _translated(f"cannot quarantine {digest}"):
            try:
                if self._version(digest) == version:
                    obstore.rename(
                        self._store,
                        _path(digest),
                        f"quarantine/{hex_of(digest)}-{uuid.uuid4().hex[:8]}",
                    )
            except (BlobNotFound, FileNotFoundError):  # another reader has set it aside
                return


class RemoteRecords:
    """Records as objects under `records/`; the version is the object's etag, and its generation
    where the store has them.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, name: str) -> Record | None:
        """As Records.get."""
        with _translated(f"cannot read the record {name}"):
            try:
                found = obstore.get(self._store, f"records/{name}")
                version = {
                    key: found.meta[key]
                    for key in ("e_tag", "version")
                    if found.meta[key] is not None
                }
                return Record(bytes(found.bytes()).decode(), version=json.dumps(version))
            except FileNotFoundError:
                return None

    def swap(self, name: str, value: str, current: Record | None) -> bool:
        """As Records.swap, by the store's own conditional write."""
        mode: Any = json.loads(current.version) if current else "create"
        with _translated(f"cannot write the record {name}"):
            try:
                obstore.put(self._store, f"records/{name}", value.encode(), mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def set(self, name: str, value: str) -> None:
        """As Records.set."""
        with _translated(f"cannot write the record {name}"):
            obstore.put(self._store, f"records/{name}", value.encode())

    def names(self, folder: str) -> list[str]:
        """As Records.names."""
        with _translated(f"cannot list the records in {folder}"):
            listed = obstore.list_with_delimiter(self._store, f"records/{folder}/")
        return sorted(entry["path"].rpartition("/")[2] for entry in listed["objects"])


def _path(digest: str) -> str:
    return f"blobs/sha256/{hex_of(digest)}"
