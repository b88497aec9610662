"""Artifacts by digest: the files of a bundle or an index, a bundle as a tar, its report
and the trace of its profile, and action keys.
"""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from artifacts.documents import INDEXES, Document, keep, read_document
from artifacts.dumps import dump_of
from artifacts.errors import NoDump, UnknownAction
from artifacts.oci import FEATURES, TARGET, bundle_files
from artifacts.store import Artifacts
from artifacts.tar import bundle_tar
from relaxd.contract.bundle.manifest import FILENAME
from relaxd.contract.bundle.report import Report
from relaxd.reports.trace import trace
from service.api.oci_content import identity_headers, is_known, not_modified
from service.api.oci_names import StoreOf, blob_path
from service.api.scopes import principal_of
from service.api.tenant_threads import TenantRoute
from service.api.wire import Digest
from service.identity import bundles_of
from service.usecases.builds.explaining import report_of
from service.usecases.tenants.sharing import flight_key_of

TAR = "application/x-tar"

Dump = Annotated[
    bool,
    Query(description="Answer for the compiler's dump of the bundle instead of the bundle."),
]


Measured = Annotated[
    Digest | None,
    Query(description="The digest of one of the report's profiles; the newest unless given."),
]


class TraceOut(BaseModel):
    """Chrome's trace event format: one event for each call of a kernel, times in microseconds."""

    events: Annotated[list[dict[str, Any]], Field(alias="traceEvents")]
    unit: Annotated[Literal["ms", "ns"], Field(alias="displayTimeUnit")]
    about: Annotated[dict[str, str], Field(alias="otherData")]


class FileOut(BaseModel):
    """One file of a bundle; `size` in bytes, `url` relative to the server."""

    name: str
    digest: str
    size: int
    url: str


class TargetOut(BaseModel):
    """One bundle of an index; `url` is its own artifact document."""

    target: str | None
    digest: str
    features: list[str]
    url: str


class ArtifactOut(BaseModel):
    """A bundle (with `files`) or an index over several (with `targets`); `size` is the bytes of all
    files.
    """

    digest: str
    ref: str
    media_type: str
    artifact_type: str | None
    size: int
    annotations: dict[str, str]
    files: list[FileOut]
    targets: list[TargetOut]


class ActionOut(BaseModel):
    """An action key: `parts` decide its `digest`; `bundle` is the digest of what was built."""

    digest: str
    parts: dict[str, Any]
    bundle: str


def router(store_of: StoreOf) -> APIRouter:
    """The endpoints that describe an artifact; errors leave as the app's problems."""
    routes = APIRouter(route_class=TenantRoute, tags=["artifacts"])
    answers: dict[int | str, dict[str, Any]] = {
        200: {"content": {TAR: {"schema": {"type": "string", "format": "binary"}}}}
    }

    @routes.get("/v1/artifacts/{digest}", response_model=ArtifactOut, responses=answers)
    def artifact(digest: str, request: Request, dump: Dump = False) -> Response:
        """The files or bundles of the artifact; with `Accept: application/x-tar`, its files."""
        artifacts, tenant = store_of(request), principal_of(request).tenant
        if dump:
            digest = _dump(artifacts, digest, bundles_of(tenant))
        document = read_document(artifacts.blobs, digest)
        if TAR in request.headers.get("Accept", ""):
            keep(artifacts.blobs, digest)  # so that the tar can end
            headers = {"Docker-Content-Digest": digest, "Vary": "Accept"}
            return StreamingResponse(
                bundle_tar(artifacts.blobs, bundle_files(document)), media_type=TAR, headers=headers
            )
        if is_known(request, digest):
            return not_modified(digest)
        return JSONResponse(
            _describe(digest, document, bundles_of(tenant)).model_dump(),
            headers=identity_headers(digest) | {"Vary": "Accept"},
        )

    @routes.get("/v1/artifacts/{digest}/report", response_model=Report)
    def report(digest: Digest, request: Request) -> JSONResponse:
        """Everything known about a bundle: dims, numerics, kernels and profiles."""
        repository = bundles_of(principal_of(request).tenant)
        return JSONResponse(report_of(store_of(request), digest, repository).to_json())

    @routes.get("/v1/artifacts/{digest}/trace", response_model=TraceOut)
    def profiled_run(digest: Digest, request: Request, profile: Measured = None) -> JSONResponse:
        """The profiled run as trace events, which Perfetto and Chrome's `about:tracing` open."""
        repository = bundles_of(principal_of(request).tenant)
        report = report_of(store_of(request), digest, repository)
        return JSONResponse(trace(report, profile))

    @routes.get("/v1/actions/{digest}", response_model=ActionOut)
    def action(digest: Digest, request: Request) -> ActionOut:
        """The parts of an action key, and the bundle that is recorded for it."""
        artifacts, tenant = store_of(request), principal_of(request).tenant
        bundle = artifacts.actions.get(digest) or artifacts.actions.get(
            flight_key_of(tenant, digest, shared=False)
        )
        if bundle is None:
            raise UnknownAction(digest)
        files = bundle_files(read_document(artifacts.blobs, bundle))
        recorded = json.loads(artifacts.blobs.read(files[FILENAME].digest))["action_key"]
        return ActionOut(digest=digest, parts=recorded["parts"], bundle=bundle)

    return routes


def _dump(artifacts: Artifacts, bundle: str, repository: str) -> str:
    read_document(artifacts.blobs, bundle)
    dump = dump_of(artifacts, bundle, repository)
    if dump is None:
        raise NoDump(bundle)
    return dump.digest


def _describe(digest: str, document: Document, repository: str) -> ArtifactOut:
    files = {} if document.media_type in INDEXES else bundle_files(document)
    return ArtifactOut(
        digest=digest,
        ref=f"{repository}@{digest}",
        media_type=document.media_type,
        artifact_type=document.artifact_type,
        size=sum(layer.size for layer in files.values()),
        annotations=document.annotations,
        files=[
            FileOut(
                name=name,
                digest=layer.digest,
                size=layer.size,
                url=blob_path(repository, layer.digest),
            )
            for name, layer in files.items()
        ],
        targets=[
            TargetOut(
                target=child.annotations.get(TARGET),
                digest=child.digest,
                features=[
                    feature for feature in child.annotations.get(FEATURES, "").split(",") if feature
                ],
                url=f"/v1/artifacts/{child.digest}",
            )
            for child in document.children
        ],
    )
