"""Blobs up: monolithic, in chunks, resumed, and mounted from another repository."""

import re
from http import HTTPStatus

import anyio.to_thread
from fastapi import APIRouter, Request, Response

from artifacts.store import BlobStore, hex_of
from service.api.oci_errors import Code, RegistryError, RegistryRoute
from service.api.oci_names import Repository, StoreOf, blob_path, upload_path
from service.api.oci_sessions import Sessions
from service.api.scopes import principal_of

CONTENT_RANGE = re.compile(r"(?:bytes )?(\d{1,18})-(\d{1,18})(?:/.*)?")


def router(store_of: StoreOf, shared: Sessions) -> APIRouter:
    """Endpoints end-4a, 4b, 5, 6, 11 and 13 of the distribution spec."""
    routes = APIRouter(route_class=RegistryRoute, include_in_schema=False)

    def of(request: Request) -> Sessions:
        return shared.of(principal_of(request).tenant)

    @routes.post("/v2/{name:path}/blobs/uploads/")
    @routes.post("/v2/{name:path}/blobs/uploads")
    async def start(
        name: Repository, request: Request, digest: str | None = None, mount: str | None = None
    ) -> Response:
        blobs, sessions = store_of(request).blobs, of(request)
        if mount is not None and await anyio.to_thread.run_sync(blobs.touch, mount):
            return _created(name, mount)
        if digest is not None:
            hex_of(digest)
        announced = _announced_size(request) if digest is not None else None
        upload = await anyio.to_thread.run_sync(sessions.start, announced or 0)
        if digest is None:
            return _accepted(name, upload, 0)
        try:
            return await _finish(blobs, sessions, name, upload, digest, request)
        finally:
            # The client was never told of it, so it cannot go on.
            await anyio.to_thread.run_sync(sessions.forget, upload)

    @routes.get("/v2/{name:path}/blobs/uploads/{upload}")
    def status(name: Repository, upload: str, request: Request) -> Response:
        return _accepted(name, upload, of(request).size(upload), HTTPStatus.NO_CONTENT)

    @routes.patch("/v2/{name:path}/blobs/uploads/{upload}")
    async def append(name: Repository, upload: str, request: Request) -> Response:
        return _accepted(name, upload, await _append(of(request), name, upload, request))

    @routes.put("/v2/{name:path}/blobs/uploads/{upload}")
    async def finish(name: Repository, upload: str, request: Request, digest: str = "") -> Response:
        blobs = store_of(request).blobs
        return await _finish(blobs, of(request), name, upload, digest, request)

    @routes.delete("/v2/{name:path}/blobs/uploads/{upload}")
    def cancel(name: Repository, upload: str, request: Request) -> Response:
        of(request).discard(upload)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return routes


async def _append(sessions: Sessions, name: str, upload: str, request: Request) -> int:
    async with sessions.writing(upload) as file:
        return await sessions.append(
            file, request.stream(), _announced_length(request, name, upload, file.tell())
        )


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
    blobs: BlobStore, sessions: Sessions, name: str, upload: str, digest: str, request: Request
) -> Response:
    hex_of(digest)
    request.state.subject = f"{name}@{digest}"
    try:
        await _append(sessions, name, upload, request)
        await anyio.to_thread.run_sync(sessions.store, upload, blobs, digest)
    except RegistryError as error:
        # A client that did not hear of its success asks again.
        if error.oci_code is Code.BLOB_UPLOAD_UNKNOWN and await anyio.to_thread.run_sync(
            blobs.touch, digest
        ):
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
