"""Uploads under way, one file each on disk, so that they outlive the process that began them."""

import fcntl
import math
import os
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

from starlette.requests import ClientDisconnect

from artifacts.errors import DigestMismatch, StorageFailed
from artifacts.files import check_room, keep_pace, storage_errors
from artifacts.store import CHUNK, Blob, BlobStore, put_file
from relaxd.contract.canonical import digest_of
from service.api.oci_errors import Code, RegistryError
from service.api.tenant_threads import run_in_thread, width_for
from service.identity import DEFAULT
from service.usecases.store.holdings import draw_on
from service.usecases.store.reserving import Reservation, Uploads

IDENTIFIER = re.compile(r"[0-9a-f]{32}")
SWEEP_S = 60


@dataclass(frozen=True)
class Bounds:
    """Limits of every session: the largest blob in bytes, the bytes that the disk keeps free, and
    the seconds for which a session stays that nobody writes to.
    """

    max_bytes: int
    reserve: int = 0
    idle_s: float = 3600


@dataclass(frozen=True)
class Started:
    """A new session's identifier, and what counts for it."""

    identifier: str
    reserved: Reservation


class Sessions:
    """Upload sessions in a folder; each is written by one request at a time, whichever process
    serves it. Those of another tenant are unknown. What they hold counts for the tenant's quota.
    """

    def __init__(
        self, folder: Path, bounds: Bounds, uploads: Uploads, tenant: str = DEFAULT
    ) -> None:
        self._folder = folder
        self._bounds = bounds
        self._uploads = uploads
        self._tenant = tenant
        self._swept = -math.inf
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, tenant: str) -> "Sessions":
        """The sessions of another tenant."""
        if tenant == self._tenant:
            return self
        return Sessions(self._folder, self._bounds, self._uploads, tenant)

    @property
    def largest_at_once(self) -> int:
        """The size of the largest blob that `store_whole` takes."""
        return min(CHUNK, self._bounds.max_bytes)

    def store_whole(self, data: bytes, blobs: BlobStore, digest: str) -> Blob:
        """Put a blob into the store that came whole; raises StoreError, QuotaExceeded."""
        check_room(self._folder, len(data), self._bounds.reserve)
        return blobs.put(data, digest)

    def start(self, size: int = 0) -> Started:
        """A new session, for a blob of that size if it is known; now and again sweeps those that
        nobody goes on with. Raises StorageFailed, QuotaExceeded, TooManyUploads.
        """
        identifier = uuid.uuid4().hex
        with storage_errors(f"cannot begin an upload in {self._folder}"):
            if time.monotonic() - self._swept >= SWEEP_S:
                self._swept = time.monotonic()
                for path in self._folder.iterdir():
                    _remove_forgotten(path, self._bounds.idle_s)
        path = self._path(identifier)
        check_room(self._folder, size, self._bounds.reserve)
        reserved = self._reservation(path)
        reserved.begin(size)
        with storage_errors(f"cannot begin an upload in {self._folder}"):
            path.touch(exist_ok=False)
        return Started(identifier, reserved)

    def _reservation(self, path: Path, size: int = 0) -> Reservation:
        return self._uploads.reservation(self._tenant, path.name, size)

    def forget(self, identifier: str) -> None:
        """End the session, if there is one."""
        path = self._path(identifier)
        path.unlink(missing_ok=True)
        self._reservation(path).end()

    def size(self, identifier: str) -> int:
        """Bytes received so far; raises BLOB_UPLOAD_UNKNOWN."""
        try:
            return self._path(identifier).stat().st_size
        except FileNotFoundError:
            raise _unknown(identifier) from None

    def discard(self, identifier: str) -> None:
        """End the session; raises BLOB_UPLOAD_UNKNOWN."""
        self.size(identifier)
        self.forget(identifier)

    @asynccontextmanager
    async def writing(self, identifier: str) -> AsyncIterator[BinaryIO]:
        """The session's file at its end, for this caller alone; raises BLOB_UPLOAD_UNKNOWN,
        TOOMANYREQUESTS.
        """
        file = await run_in_thread(self._open_alone, identifier)
        try:
            yield file
        finally:
            file.close()

    def _open_alone(self, identifier: str) -> BinaryIO:
        try:
            file = open(self._path(identifier), "r+b", buffering=0)  # noqa: SIM115 (the caller closes it)
        except FileNotFoundError:
            raise _unknown(identifier) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise _busy(identifier) from None
        file.seek(0, os.SEEK_END)
        return file

    async def append(
        self,
        file: BinaryIO,
        body: AsyncIterator[bytes],
        length: int | None,
        started: Started | None = None,
    ) -> int:
        """Add the body to a session being written; the session's size after it. One that was
        `started` for this request ends with it.

        A body that is too large, not of the length announced, or for which the disk or the tenant
        has no room leaves the session as it was; raises RegistryError, StorageFailed,
        QuotaExceeded. A connection that breaks leaves what had arrived, for the client to go on
        from.
        """
        if started is not None:
            return await self._append(file, body, length, started.reserved)
        start = file.tell()
        reserved = self._reservation(Path(file.name), start)
        try:
            return await self._append(file, body, length, reserved)
        except StorageFailed:
            await run_in_thread(_cut, file, start)
            raise
        finally:
            await run_in_thread(reserved.settle, os.fstat(file.fileno()).st_size)

    async def _append(
        self, file: BinaryIO, body: AsyncIterator[bytes], length: int | None, reserved: Reservation
    ) -> int:
        size = start = file.tell()
        pending = bytearray()
        if length is not None:
            await run_in_thread(self._expect, start, length, reserved)

        async def write() -> None:
            data = bytes(pending)
            await run_in_thread(self._write, file, data, size, reserved, width=width_for(size))
            pending.clear()

        try:
            async for chunk in body:
                pending += chunk
                size += len(chunk)
                if size > self._bounds.max_bytes:
                    await run_in_thread(file.truncate, start)
                    raise _too_large(self._bounds.max_bytes)
                if len(pending) >= CHUNK:
                    await write()
        except ClientDisconnect:
            await write()
            raise RegistryError(
                Code.BLOB_UPLOAD_INVALID, f"the connection broke after {size - start} bytes"
            ) from None
        if length is not None and size - start != length:
            await run_in_thread(file.truncate, start)
            raise RegistryError(
                Code.SIZE_INVALID,
                f"{length} bytes are announced, the body has {size - start}",
            )
        await write()
        return size

    def _expect(self, start: int, length: int, reserved: Reservation) -> None:
        """Have room for so many bytes more before they come."""
        if start + length > self._bounds.max_bytes:
            raise _too_large(self._bounds.max_bytes)
        reserved.cover(start + length, is_all=True)
        check_room(self._folder, length, self._bounds.reserve)

    def _write(self, file: BinaryIO, data: bytes, size: int, reserved: Reservation) -> None:
        """Add the data to a session, which has `size` bytes then."""
        if data:
            reserved.cover(size)
            check_room(self._folder, len(data), self._bounds.reserve)
            _write_all(file, data)
            keep_pace(file, size - len(data), size)

    def store(
        self, identifier: str, blobs: BlobStore, digest: str, started: Started | None = None
    ) -> Blob:
        """Move a complete session into the store; raises DigestMismatch, after which the session is
        over too.
        """
        path, size = self._path(identifier), self.size(identifier)
        reserved = started.reserved if started else self._reservation(path, size)
        try:
            blob = put_file(draw_on(reserved, blobs), path, digest)
        except FileNotFoundError:
            raise _unknown(identifier) from None
        except DigestMismatch:
            self.forget(identifier)
            raise
        self.forget(identifier)
        return blob

    def _path(self, identifier: str) -> Path:
        if not IDENTIFIER.fullmatch(identifier):
            raise _unknown(identifier)
        # Bound to its tenant: an identifier that leaked is no use to another.
        owned = (
            identifier
            if self._tenant == DEFAULT
            else digest_of(f"{self._tenant} {identifier}".encode()).removeprefix("sha256:")[
                : len(identifier)
            ]
        )
        return self._folder / owned


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    with storage_errors("cannot keep the upload"):
        while view:
            view = view[file.write(view) :]


def _cut(file: BinaryIO, size: int) -> None:
    with suppress(OSError):
        file.truncate(size)


def _remove_forgotten(path: Path, idle_s: float) -> None:
    try:
        if time.time() - path.stat().st_mtime > idle_s:
            path.unlink()
    except FileNotFoundError:  # another process was first
        return


def _unknown(identifier: str) -> RegistryError:
    return RegistryError(
        Code.BLOB_UPLOAD_UNKNOWN,
        f"there is no upload {identifier[:64]!r}",
        HTTPStatus.NOT_FOUND,
        hint="start a new one",
    )


def _busy(identifier: str) -> RegistryError:
    message = f"another request is writing to upload {identifier}"
    return RegistryError(
        Code.TOOMANYREQUESTS, message, HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": "1"}
    )


def _too_large(limit: int) -> RegistryError:
    hint = "raise RELAXD_MAX_MODEL_BYTES on the server"
    return RegistryError(
        Code.SIZE_INVALID,
        f"the blob is larger than {limit} bytes",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        hint=hint,
    )
