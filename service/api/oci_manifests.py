"""Manifests, tags and referrers."""

import json
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from artifacts.documents import INDEX, MAX_MANIFEST, Document, keep, parse
from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidManifest
from artifacts.oci import JOB_TAG
from artifacts.referrers import MOST_REFERRERS, describe, descriptor_of
from artifacts.store import Artifacts
from relaxd.contract.canonical import digest_of, is_digest
from service.api.oci_content import identity_headers, is_known, not_modified
from service.api.oci_errors import Code, RegistryError, RegistryRoute
from service.api.oci_names import Repository, StoreOf, check_reference, manifest_path
from service.api.scopes import principal_of
from service.api.tenant_threads import HEAVY, run_in_thread
from service.identity import bundles_of
from service.usecases.store.holdings import look_up

PAGE, PAGE_BYTES = 100, 1 << 20
"""Referrers of one answer, and about the most bytes of them."""


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
        push = partial(_push, store_of(request), name, reference, content_type, data)
        return await run_in_thread(push, width=HEAVY)

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
    async def referrers(
        name: Repository,
        digest: str,
        request: Request,
        artifactType: str | None = None,  # noqa: N803 (the spec's name)
        last: str = "",
    ) -> Response:
        page = partial(_referrers, store_of(request), name, digest, artifactType, last)
        return await run_in_thread(page, width=HEAVY)

    return routes


def _referrers(
    artifacts: Artifacts, name: str, digest: str, artifact_type: str | None, last: str
) -> Response:
    """One page: it ends after PAGE referrers or PAGE_BYTES, and links to the next."""
    waiting = [each for each in artifacts.references.referrers(name, digest) if each > last]
    manifests: list[dict[str, Any]] = []
    size, seen = 0, ""
    for seen in waiting[:PAGE]:
        entry = describe(artifacts, seen)
        if entry and artifact_type in (None, entry.get("artifactType")):
            manifests.append(entry)
            size += len(json.dumps(entry))
        if size > PAGE_BYTES:
            break
    headers = {"OCI-Filters-Applied": "artifactType"} if artifact_type else {}
    if waiting and seen != waiting[-1]:
        rest = {"last": seen} | ({"artifactType": artifact_type} if artifact_type else {})
        headers["Link"] = f'</v2/{name}/referrers/{digest}?{urlencode(rest)}>; rel="next"'
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return JSONResponse(document, headers=headers, media_type=INDEX)


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
            raise _unknown(f"{digest} is not a manifest")
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
    digest = digest_of(data)
    descriptor = descriptor_of(document, digest, len(data)) if document.subject else {}
    if document.subject:
        _check_referrers(artifacts, name, document.subject.digest, digest)
    _check_blobs(artifacts, document)
    artifacts.blobs.put(data, expected=reference if is_digest(reference) else None)
    if not is_digest(reference):
        artifacts.references.tag(name, reference, digest)
    headers = {"Location": manifest_path(name, digest), "Docker-Content-Digest": digest}
    if document.subject:
        artifacts.references.note_descriptor(digest, descriptor)
        artifacts.references.refer(name, document.subject.digest, digest)
        headers["OCI-Subject"] = document.subject.digest
    return Response(status_code=HTTPStatus.CREATED, headers=headers)


def _check_referrers(artifacts: Artifacts, name: str, subject: str, digest: str) -> None:
    """Raise RegistryError for one more manifest than may refer to the subject."""
    listed = artifacts.references.referrers(name, subject)
    if len(listed) >= MOST_REFERRERS and digest not in listed:
        raise RegistryError(
            Code.DENIED,
            f"{len(listed)} manifests refer to {subject} in {name} already",
            HTTPStatus.FORBIDDEN,
            hint="push it to another repository, or with another subject",
        )


def _check_blobs(artifacts: Artifacts, document: Document) -> None:
    """Checks that every blob of a manifest is stored, at its size, before the manifest is."""
    parts = (*document.blobs, *document.children)
    announcements = dict.fromkeys((part.digest, part.size) for part in parts)
    blobs = look_up(artifacts.blobs, [digest for digest, _ in announcements])
    for digest, announced in announcements:
        if not blobs.touch(digest):
            raise RegistryError(
                Code.MANIFEST_BLOB_UNKNOWN,
                f"the manifest refers to {digest}, which is not here",
                hint="push it first",
            )
        if (size := blobs.size(digest)) != announced:
            raise RegistryError(
                Code.SIZE_INVALID,
                f"the manifest gives {digest} {announced} bytes, it has {size}",
            )
