"""The artifact store in an object store (S3, GCS, Azure, memory), through obstore.

obstore writes objects atomically and swaps them by etag, as promised here; its local backend does
not fsync, which is why the local file system has a store of its own.

Object stores have no lock and obstore no conditional delete, so `put` and `touch` on one side and
`discard` on the other each write first and look afterwards, which a strongly consistent store (S3,
GCS, Azure) puts in one order for all. `discard` marks the blob as doomed, looks when it was last
touched, deletes it, and unmarks it. `touch` writes an object `touched/<hex>`, waits while the blob
is doomed, and then looks whether it is there; `put` does so after its write, and writes again what
has gone. A mark of a process that died is taken over after TAKE_OVER_S, and a delete that comes so
late is not sent any more.
"""

import hashlib
import json
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import IO, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import MemoryStore, from_url

from artifacts.errors import BlobNotFound, DigestMismatch, StorageFailed
from artifacts.parallel import call_many
from artifacts.reading import VerifyingReader
from artifacts.store import CHUNK, FRESH_S, Blob, Listed, ListedBlob, Record, hex_of
from relaxd.contract.canonical import digest_of

IN_MEMORY = 8 << 20
PATIENCE_S = 10.0
"""How long a touch waits for a blob that is being removed."""
POLL_S = 0.05
ABANDON_S, TAKE_OVER_S = 60.0, 900.0
MOST_DOOMED = 256
"""Blobs that are marked, looked at and deleted together: a touch of one waits until all are."""
SLOWER = 8
"""By how many times fewer are, where these take a store too long."""
REMEMBERED = 65536
RETRY, RETRIES, LONGEST_RETRY = timedelta(milliseconds=10), 12, timedelta(minutes=3)
"""obstore's own first pause of 100 ms would show in one request of a hundred where a store refuses
as many; with two repetitions more, it gives up after about as long."""


def connect(url: str, **options: Any) -> Any:
    """An obstore handle for the URL; credentials come from the environment, as each cloud's own
    tools read them. A request that is refused is repeated, first after RETRY.

    Raises StorageFailed for a URL or settings that obstore refuses.
    """
    with _translated(f"cannot open the store {url}"):
        if url.startswith("memory:"):
            return from_url("memory:///", **options)
        backoff = {"init_backoff": RETRY, "max_backoff": timedelta(seconds=15), "base": 2}
        retry = {"backoff": backoff, "max_retries": RETRIES, "retry_timeout": LONGEST_RETRY}
        return from_url(url, **{"retry_config": retry, **options})


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
        self._touches: dict[str, float] = {}

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        """Implement BlobStore.put; the content is spooled first, since its name is its digest."""
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
            return self._settle(blob, spool)

    def _settle(self, blob: Blob, content: IO[bytes]) -> Blob:
        """Write the content unless the blob is there and stays."""
        new = False
        size = self._touch(blob.digest) if self.has(blob.digest) else None
        while size != blob.size:
            new = True
            content.seek(0)
            with _translated(f"cannot write {blob.digest}"):
                obstore.put(self._store, _path(blob.digest), content)
            self._touches.pop(blob.digest, None)
            size = self._touch(blob.digest)
        return replace(blob, new=new)

    def has(self, digest: str) -> bool:
        """Implement BlobStore.has."""
        try:
            self._head(digest)
        except BlobNotFound:
            return False
        return True

    def size(self, digest: str) -> int:
        """Implement BlobStore.size."""
        return int(self._head(digest)["size"])

    def touch(self, digest: str) -> bool:
        """Implement BlobStore.touch; what this process has just touched is not looked up again:
        no collection may remove it, and it is missing only if a reader has set it aside.
        """
        hex_of(digest)
        if self._is_fresh(digest):
            return True
        return self.has(digest) and self._touch(digest) is not None

    def _is_fresh(self, digest: str) -> bool:
        return self._touches.get(digest, 0) > time.time() - FRESH_S

    def _touch(self, digest: str) -> int | None:
        """Touch a blob that was there a moment ago; its size, None if it is gone."""
        touched = self._touches[digest] if self._is_fresh(digest) else time.time()
        if not self._is_fresh(digest):
            with _translated(f"cannot touch {digest}"):
                obstore.put(self._store, _touched(digest), b"")
            self._wait_while_doomed(digest)
        try:
            size = self.size(digest)
        except BlobNotFound:
            self._touches.pop(digest, None)
            self._delete(_touched(digest))
            return None
        if len(self._touches) >= REMEMBERED:
            self._touches.clear()
        self._touches[digest] = touched
        return size

    def _wait_while_doomed(self, digest: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while self._modified(_doomed(digest)) is not None:
            if time.monotonic() > until:
                raise StorageFailed(f"{digest} is being removed", hint="try again in a while")
            time.sleep(POLL_S)

    def listing(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.listing; takes the marks away that a dead process left."""
        for entry in self._entries("doomed/sha256"):
            self.discard(f"sha256:{entry['path'].rpartition('/')[2]}", before=0)
        touched = {
            entry["path"].rpartition("/")[2]: entry["last_modified"].timestamp()
            for entry in self._entries("touched/sha256")
        }
        for entry in self._entries("blobs/sha256"):
            name = entry["path"].rpartition("/")[2]
            modified = entry["last_modified"].timestamp()
            yield ListedBlob(f"sha256:{name}", entry["size"], max(modified, touched.get(name, 0)))

    def discard(self, digest: str, before: float) -> bool:
        """Implement BlobStore.discard; False too where another process is at it."""
        return digest in self.discard_many([digest], before)

    def discard_many(self, digests: Sequence[str], before: float) -> set[str]:
        """Implement BlobStore.discard_many; deletes MOST_DOOMED blobs by one request, where the
        store takes such.
        """
        gone, start, most = set[str](), 0, MOST_DOOMED
        while start < len(digests):
            part = digests[start : start + most]
            removed = self._discard_part(part, before)
            if removed is None and len(part) > 1:
                most = max(len(part) // SLOWER, 1)  # the store is too slow for so many
                continue
            gone |= removed or set()
            start += len(part)
        return gone

    def _discard_part(self, digests: Sequence[str], before: float) -> set[str] | None:
        """The blobs that are removed; None where marking and looking took so long that touches may
        have given the marks up.
        """
        began = time.monotonic()
        doomed = [digest for digest, is_ours in call_many(self._doom, digests) if is_ours]
        times_of = dict(call_many(self._times, doomed))
        late = time.monotonic() - began > ABANDON_S
        old = {
            digest: times
            for digest, times in times_of.items()
            if not late and all(touched < before for touched in times.values())
        }
        for digest in doomed:
            self._touches.pop(digest, None)
        # A deletion that fails may still come through: the marks then stay, until they are taken
        # over.
        self._delete(*(path for times in old.values() for path in times))
        self._delete(*map(_doomed, doomed))
        return None if late else set(old)

    def _times(self, digest: str) -> dict[str, float]:
        """When the blob was put and touched, by the paths of the objects that say so."""
        times = {path: self._modified(path) for path in (_path(digest), _touched(digest))}
        return {path: modified for path, modified in times.items() if modified is not None}

    def presign(self, digest: str, seconds: float) -> str | None:
        """Implement BlobStore.presign."""
        if isinstance(self._store, MemoryStore):
            return None
        with _translated(f"cannot sign a URL of {digest}"):
            path, lifetime = _path(digest), timedelta(seconds=seconds)
            return str(obstore.sign(self._store, "GET", path, lifetime))

    def last_touch(self, digest: str) -> float | None:
        """Implement BlobStore.last_touch."""
        times = self._times(digest)
        return max(times.values()) if _path(digest) in times else None

    def _doom(self, digest: str) -> bool:
        """Mark the blob as being removed; whether the mark is ours."""
        with _translated(f"cannot remove {digest}"):
            try:
                obstore.put(self._store, _doomed(digest), b"", mode="create")
            except AlreadyExistsError:
                marked = self._modified(_doomed(digest))
                return marked is not None and marked < time.time() - TAKE_OVER_S
        return True

    def quarantine(self) -> Iterator[ListedBlob]:
        """Implement BlobStore.quarantine."""
        for entry in self._entries("quarantine"):
            name = entry["path"].rpartition("/")[2].partition("-")[0]
            yield ListedBlob(f"sha256:{name}", entry["size"], entry["last_modified"].timestamp())

    def clear_quarantine(self, before: float) -> int:
        """Implement BlobStore.clear_quarantine."""
        old = [
            entry["path"]
            for entry in self._entries("quarantine")
            if entry["last_modified"].timestamp() < before
        ]
        for path in old:
            self._delete(path)
        return len(old)

    def free(self) -> int | None:
        """Implement BlobStore.free: object stores have no end."""
        return None

    def _entries(self, folder: str) -> Iterator[Any]:
        with _translated(f"cannot list {folder}"):
            for chunk in obstore.list(self._store, f"{folder}/"):
                yield from _inside(folder, chunk)

    def _modified(self, path: str) -> float | None:
        with _translated(f"cannot look up {path}"):
            try:
                return float(obstore.head(self._store, path)["last_modified"].timestamp())
            except FileNotFoundError:
                return None

    def _delete(self, *paths: str) -> None:
        if not paths:
            return
        with _translated(f"cannot remove {paths[0]}" + (" and others" if paths[1:] else "")):
            try:
                obstore.delete(self._store, paths[0] if len(paths) == 1 else list(paths))
                return
            except FileNotFoundError:
                pass
        for path in paths if len(paths) > 1 else ():  # where one is missing, others may remain
            self._delete(path)

    def _head(self, digest: str) -> Any:
        path = _path(digest)
        with _translated(f"cannot look up {digest}"):
            try:
                return obstore.head(self._store, path)
            except FileNotFoundError:
                raise BlobNotFound(digest) from None

    def read(self, digest: str) -> bytes:
        """Implement BlobStore.read, in one request."""
        path = _path(digest)
        with _translated(f"cannot read {digest}"):
            try:
                response = obstore.get(self._store, path)
                content = bytes(response.bytes())
            except FileNotFoundError:
                raise BlobNotFound(digest) from None
        if digest_of(content) != digest:
            raise self._corrupt(digest, _version_of(response.meta))
        return content

    def _version(self, digest: str) -> str:
        return _version_of(self._head(digest))

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
        self._touches.pop(digest, None)
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
        """Implement Records.get."""
        with _translated(f"cannot read the record {name}"):
            try:
                response = obstore.get(self._store, f"records/{name}")
                version = {
                    key: response.meta[key]
                    for key in ("e_tag", "version")
                    if response.meta[key] is not None
                }
                value = bytes(response.bytes()).decode(errors="replace")
                return Record(value, version=json.dumps(version))
            except FileNotFoundError:
                return None

    def swap(self, name: str, value: str, current: Record | None) -> bool:
        """Implement Records.swap, by the store's own conditional write."""
        mode: Any = json.loads(current.version) if current else "create"
        with _translated(f"cannot write the record {name}"):
            try:
                obstore.put(self._store, f"records/{name}", value.encode(), mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def set(self, name: str, value: str) -> None:
        """Implement Records.set."""
        with _translated(f"cannot write the record {name}"):
            obstore.put(self._store, f"records/{name}", value.encode())

    def names(self, folder: str) -> list[str]:
        """Implement Records.names."""
        path = f"records/{folder}"
        with _translated(f"cannot list the records in {folder}"):
            listed = obstore.list_with_delimiter(self._store, f"{path}/")
        return sorted(
            entry["path"].removeprefix(f"{path}/") for entry in _inside(path, listed["objects"])
        )

    def walk(self, folder: str) -> Iterator[Listed]:
        """Implement Records.walk."""
        with _translated(f"cannot list the records in {folder}"):
            for chunk in obstore.list(self._store, f"records/{folder}/"):
                for entry in _inside(f"records/{folder}", chunk):
                    name = entry["path"].removeprefix("records/")
                    yield Listed(name, entry["last_modified"].timestamp())

    def remove(self, name: str, value: str) -> bool:
        """Implement Records.remove, as far as a store without conditional deletes can: what is
        written between the read and the removal is lost.
        """
        current = self.get(name)
        if current is None or current.value != value:
            return False
        with _translated(f"cannot remove the record {name}"):
            try:
                obstore.delete(self._store, f"records/{name}")
            except FileNotFoundError:
                return False
        return True


def _version_of(head: Any) -> str:
    return f"{head['e_tag']}.{head['last_modified']}.{head['size']}"


def _inside(folder: str, entries: Iterable[Any]) -> Iterator[Any]:
    """The entries without that of the folder itself: some S3 servers list an empty folder, and
    consoles make an object for it.
    """
    return (entry for entry in entries if entry["path"].startswith(f"{folder}/"))


def _path(digest: str) -> str:
    return f"blobs/sha256/{hex_of(digest)}"


def _touched(digest: str) -> str:
    return f"touched/sha256/{hex_of(digest)}"


def _doomed(digest: str) -> str:
    return f"doomed/sha256/{hex_of(digest)}"
