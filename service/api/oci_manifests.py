"""Manifests, tags and referrers."""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from artifacts.documents import (
    INDEX,
    MAX_MANIFEST,
    Descriptor,
    Document,
    keep,
    parse,
    read_document,
)
from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidDigest, InvalidManifest
from artifacts.oci import JOB_TAG
from artifacts.store import Artifacts
from relaxd.contract.canonical import is_digest
from service.api.oci_content import identity_headers, is_known, not_modified
from service.api.oci_errors import Code, RegistryError, RegistryRoute
from service.api.oci_names import Repository, StoreOf, check_reference, manifest_path
from service.api.scopes import principal_of
from service.identity import bundles_of


def router(store_of: StoreOf) -> APIRouter:
    """Endpoints end-3, 7, 8 and 12 of the distribution spec."""
    routes = APIRouter(route_class=RegistryRoute, include_in_schema=False)

    @routes.api_route("/v2/{name:path}/manifests/{reference}", methods=["GET", "HEAD"])
    def pull(name: Repository, reference: str, request: Request) -> Response:
        artifacts = store_of(request)
        digest = _resolve(artifacts, name, check_reference(reference))
        data, document = _read(artifacts, digest)
        # So that a pull which has begun can end, and a push that finds it here can rely on it.
        keep(artifacts.blobs, digest)
        if is_known(request, digest):
            return not_modified(digest)
        headers = identity_headers(digest) | {
            "Content-Length": str(len(data)),
            "Content-Type": document.media_type,
        }
        if not is_digest(reference):
            headers["Cache-Control"] = "no-cache"
        return Response(b"" if request.method == "HEAD" else data, headers=headers)

    @routes.put("/v2/{name:path}/manifests/{reference}")
    async def push(name: Repository, reference: str, request: Request) -> Response:
        check_reference(reference)
        _check_free(name, reference, principal_of(request).tenant)
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        data = await _body(request)
        return await anyio.to_thread.run_sync(
            _push, store_of(request), name, reference, content_type, data
        )

    @routes.get("/v2/{name:path}/tags/list")
    def tags(
        name: Repository,
        request: Request,
        n: int | None = Query(None, ge=0),
        last: str | None = None,
    ) -> Response:
        most = None if n is None else n + 1  # one more shows that there are more
        page = store_of(request).references.tags(name, after=last or "", most=most)
        shown = page if n is None else page[:n]
        headers = {}
        if shown and len(shown) < len(page):
            headers["Link"] = (
                f'</v2/{name}/tags/list?{urlencode({"n": n, "last": shown[-1]})}>; rel="next"'
            )
        return JSONResponse({"name": name, "tags": shown}, headers=headers)

    @routes.get("/v2/{name:path}/referrers/{digest}")
    def referrers(
        name: Repository,
        digest: str,
        request: Request,
        artifactType: str | None = None,  # noqa: N803 (the spec's name)
    ) -> Response:
        artifacts = store_of(request)
        listed = [
            _referrer(artifacts, page) for page in artifacts.references.referrers(name, digest)
        ]
        manifests = [
            entry for entry in listed if entry and artifactType in (None, entry.get("artifactType"))
        ]
        headers = {"OCI-Filters-Applied": "artifactType"} if artifactType else {}
        return JSONResponse(
            {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests},
            headers=headers,
            media_type=INDEX,
        )

    return routes


def _check_free(name: str, reference: str, tenant: str) -> None:
    """Raise RegistryError for a tag that names a job's index, which the service alone writes."""
    if name == bundles_of(tenant) and reference.startswith(JOB_TAG):
        raise RegistryError(
            Code.DENIED,
            f"tags {JOB_TAG}... of {name} are the service's own",
            HTTPStatus.FORBIDDEN,
            hint="choose another tag, or another repository",
        )


def _resolve(artifacts: Artifacts, name: str, reference: str) -> str:
    digest = reference if is_digest(reference) else artifacts.references.resolve(name, reference)
    if digest is None:
        raise _unknown(f"{name} has no tag {reference}")
    return digest


def _read(artifacts: Artifacts, digest: str) -> tuple[bytes, Document]:
    try:
        if artifacts.blobs.size(digest) > MAX_MANIFEST:
            raise _unknown(f"{digest} is no manifest")
        data = artifacts.blobs.read(digest)
        return data, parse(data)
    except (BlobNotFound, BlobCorrupt, InvalidManifest) as error:
        raise _unknown(error.message) from error


def _unknown(message: str) -> RegistryError:
    return RegistryError(
        Code.MANIFEST_UNKNOWN, message, HTTPStatus.NOT_FOUND, hint="push it, or build it again"
    )


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_MANIFEST:
            message = f"the manifest is larger than {MAX_MANIFEST} bytes"
            raise RegistryError(
                Code.SIZE_INVALID,
                message,
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                hint="keep data in layers",
            )
    return bytes(data)


def _push(
    artifacts: Artifacts, name: str, reference: str, content_type: str, data: bytes
) -> Response:
    document = parse(data)
    if content_type and content_type != document.media_type:
        raise RegistryError(
            Code.MANIFEST_INVALID,
            f"Content-Type is {content_type}; the manifest is {document.media_type}",
        )
    _check_blobs(artifacts, document)
    digest = artifacts.blobs.put(data, expected=reference if is_digest(reference) else None).digest
    if not is_digest(reference):
        artifacts.references.tag(name, reference, digest)
    headers = {"Location": manifest_path(name, digest), "Docker-Content-Digest": digest}
    if document.subject:
        artifacts.references.refer(name, document.subject.digest, digest)
        headers["OCI-Subject"] = document.subject.digest
    return Response(status_code=HTTPStatus.CREATED, headers=headers)


def _check_blobs(artifacts: Artifacts, document: Document) -> None:
    """Checks that every blob of a manifest is stored, at its size, before the manifest is."""
    for part in (*document.blobs, *document.children):
        if not artifacts.blobs.touch(part.digest):
            raise RegistryError(
                Code.MANIFEST_BLOB_UNKNOWN,
                f"the manifest refers to {part.digest}, which is not here",
                hint="push it first",
            )
        if (size := artifacts.blobs.size(part.digest)) != part.size:
            raise RegistryError(
                Code.SIZE_INVALID,
                f"the manifest gives {part.digest} {part.size} bytes, it has {size}",
            )


def _referrer(artifacts: Artifacts, digest: str) -> dict[str, Any] | None:
    """The referrer's descriptor; None for one that has been lost since, or that could not be sent:
    it must not hide the others.
    """
    try:
        document = read_document(artifacts.blobs, digest)
        size = artifacts.blobs.size(digest)
    except (BlobNotFound, BlobCorrupt, InvalidDigest, InvalidManifest):
        return None
    descriptor = Descriptor(document.media_type, digest, size, document.annotations)
    return descriptor.to_json() | (
        {"artifactType": document.artifact_type} if document.artifact_type else {}
    )
