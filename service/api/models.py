"""Endpoints about models and targets: inspect one, list the others."""

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request

from relaxd.contract.request import CompileRequest
from service.api.context import UseJobs, UseServices
from service.api.errors import UnsupportedMediaType
from service.api.uploads import FORM, FORM_TYPE, limited, read_upload
from service.api.wire import JobIn, TargetList
from service.bootstrap import Services

router = APIRouter(prefix="/v1", tags=["models"])

MAX_DOCUMENT = 1 << 20
DOCUMENT = {"application/json": {"schema": {"$ref": "#/components/schemas/JobIn"}}}


@router.post(
    "/inspect",
    summary="Report on a model without compiling it",
    openapi_extra={"requestBody": {"required": True, "content": {FORM_TYPE: FORM, **DOCUMENT}}},
)
async def inspect(
    request: Request,
    services: UseServices,
    wait: Annotated[
        float,
        Query(gt=0, le=600, allow_inf_nan=False, description="Seconds to wait for the report."),
    ] = 120,
) -> dict[str, Any]:
    """Inputs, outputs, dims, and every operator, supported or not and why.

    The model comes as a form, as in /v1/compile, or by digest in a JSON document, as in /v1/jobs.
    """
    model, declared = await _subject(request, services)
    # Threads of their own: the shared pool must stay free for short requests while workers look at
    # models.
    limiter: anyio.CapacityLimiter = request.app.state.inspections
    return await anyio.to_thread.run_sync(
        services.jobs.inspect, model, declared, wait, limiter=limiter
    )


async def _subject(request: Request, services: Services) -> tuple[str, CompileRequest]:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == FORM_TYPE:
        upload = await read_upload(
            request, services.jobs.store.blobs, services.settings.max_model_bytes
        )
        return upload.model, upload.request.request()
    if kind == "application/json":
        body = JobIn.model_validate_json(
            b"".join([chunk async for chunk in limited(request, MAX_DOCUMENT)])
        )
        return body.model, body.request()
    raise UnsupportedMediaType(
        f"the body is {kind or 'of no declared type'}", hint=f"send {FORM_TYPE} or application/json"
    )


@router.get("/targets", summary="List the targets")
def targets(jobs: UseJobs) -> TargetList:
    """Every known target in the registry's order, with the live workers that compile for it."""
    return TargetList(targets=jobs.targets())
