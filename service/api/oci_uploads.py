"""Blobs up: monolithic, in chunks, resumed, and mounted from another repository."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from artifacts.store import BlobStore, hex_of
from relaxd.http.bodies import ReadAhead
from service.api.oci_errors import Code, RegistryError, RegistryRoute
from service.api.oci_names import Repository, StoreOf, blob_path, upload_path
from service.api.oci_sessions import Sessions, Started
from service.api.scopes import principal_of
from service.api.tenant_threads import run_in_thread, width_for

MOST_AHEAD = 64 << 20
"""The memory for the beginnings of all blobs that are read before an upload begins."""
CONTENT_RANGE = re.compile(r"(?:bytes )?(\d{1,18})-(\d{1,18})(?:/.*)?")


def router(store_of: StoreOf, shared: Sessions) -> APIRouter:
    """Endpoints end-4a, 4b, 5, 6, 11 and 13 of the distribution spec."""
    routes = APIRouter(route_class=RegistryRoute, include_in_schema=False)
    ahead = ReadAhead(MOST_AHEAD)

    def of(request: Request) -> Sessions:
        return shared.of(principal_of(request).tenant)

    @routes.post("/v2/{name:path}/blobs/uploads/")
    @routes.post("/v2/{name:path}/blobs/uploads")
    async def start(
        name: Repository, request: Request, digest: str | None = None, mount: str | None = None
    ) -> Response:
        blobs, sessions = store_of(request).blobs, of(request)
        if mount is not None and await run_in_thread(blobs.touch, mount):
            return _created(name, mount)
        if digest is None:
            started = await run_in_thread(sessions.start)
            return _accepted(name, started.identifier, 0)
        hex_of(digest)
        beginning, rest = await ahead.read(request, sessions.largest_at_once)
        if rest is None and "Content-Range" not in request.headers:
            request.state.subject = f"{name}@{digest}"
            await run_in_thread(sessions.store_whole, beginning, blobs, digest)
            return _created(name, digest)
        started = await run_in_thread(sessions.start, _announced_size(request) or 0)
        upload = _Upload(name, started.identifier, _chain(beginning, rest), started)
        try:
            return await _finish(blobs, sessions, upload, digest, request)
        finally:
            # The client was never told of it, so it cannot go on.
            await run_in_thread(sessions.forget, started.identifier)

    @routes.get("/v2/{name:path}/blobs/uploads/{upload}")
    def status(name: Repository, upload: str, request: Request) -> Response:
        return _accepted(name, upload, of(request).size(upload), HTTPStatus.NO_CONTENT)

    @routes.patch("/v2/{name:path}/blobs/uploads/{upload}")
    async def append(name: Repository, upload: str, request: Request) -> Response:
        size = await _append(of(request), _Upload(name, upload, request.stream()), request)
        return _accepted(name, upload, size)

    @routes.put("/v2/{name:path}/blobs/uploads/{upload}")
    async def finish(name: Repository, upload: str, request: Request, digest: str = "") -> Response:
        blobs, appended = store_of(request).blobs, _Upload(name, upload, request.stream())
        return await _finish(blobs, of(request), appended, digest, request)

    @routes.delete("/v2/{name:path}/blobs/uploads/{upload}")
    def cancel(name: Repository, upload: str, request: Request) -> Response:
        of(request).discard(upload)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return routes


async def _chain(beginning: bytes, rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    yield beginning
    if rest is not None:
        async for part in rest:
            yield part


@dataclass(frozen=True)
class _Upload:
    """A request to add a body to an upload, which it `started` itself where that is not None."""

    name: str
    identifier: str
    body: AsyncIterator[bytes]
    started: Started | None = None


async def _append(sessions: Sessions, upload: _Upload, request: Request) -> int:
    async with sessions.writing(upload.identifier) as file:
        length = _announced_length(request, upload.name, upload.identifier, file.tell())
        return await sessions.append(file, upload.body, length, upload.started)


def _announced_size(request: Request) -> int | None:
    length = request.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"\d{1,15}", length) else None


def _announced_length(request: Request, name: str, upload: str, size: int) -> int | None:
    """The chunk's length by its Content-Range or Content-Length, None without one; raises 416 when
    the chunk does not follow what is here.
    """
    header = request.headers.get("Content-Range")
    if header is None:
        return _announced_size(request)
    match = CONTENT_RANGE.fullmatch(header.strip())
    if not match or int(match[2]) < int(match[1]):
        raise RegistryError(
            Code.BLOB_UPLOAD_INVALID,
            f"Content-Range is {header[:100]!r}",
            hint="write it as <first>-<last>, both inclusive",
        )
    if int(match[1]) != size:
        raise RegistryError(
            Code.BLOB_UPLOAD_INVALID,
            f"the chunk starts at {match[1]}, the upload has {size} bytes",
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            _position(name, upload, size),
            hint="continue after the last byte that Range names",
        )
    return int(match[2]) + 1 - int(match[1])


async def _finish(
    blobs: BlobStore, sessions: Sessions, upload: _Upload, digest: str, request: Request
) -> Response:
    hex_of(digest)
    name, identifier = upload.name, upload.identifier
    request.state.subject = f"{name}@{digest}"
    try:
        await _append(sessions, upload, request)
        store = partial(sessions.store, identifier, blobs, digest, upload.started)
        await run_in_thread(store, width=width_for(sessions.size(identifier)))
    except RegistryError as error:
        # A client that did not hear of its success asks again.
        if error.oci_code is Code.BLOB_UPLOAD_UNKNOWN and await run_in_thread(blobs.touch, digest):
            return _created(name, digest)
        raise
    return _created(name, digest)


def _position(name: str, upload: str, size: int) -> dict[str, str]:
    # The spec has no way to write an empty range; registries write 0-0.
    return {
        "Location": upload_path(name, upload),
        "Range": f"0-{max(size - 1, 0)}",
        "Docker-Upload-UUID": upload,
    }


def _accepted(
    name: str, upload: str, size: int, status: HTTPStatus = HTTPStatus.ACCEPTED
) -> Response:
    return Response(status_code=status, headers=_position(name, upload, size))


def _created(name: str, digest: str) -> Response:
    headers = {"Location": blob_path(name, digest), "Docker-Content-Digest": digest}
    return Response(status_code=HTTPStatus.CREATED, headers=headers)
