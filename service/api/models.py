"""Endpoints about models and targets: inspect one, list the others."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from relaxd.contract.request import CompileRequest
from relaxd.http.bodies import JSON_TYPE, media_type
from relaxd.http.errors import UnsupportedMediaType
from service.api.context import UseJobs, UseServices, UseWatch
from service.api.documents import JOB_CONTENT, read_job, width_of
from service.api.tenant_threads import TenantRoute, run_in_thread
from service.api.uploads import FORM, FORM_TYPE, receive
from service.api.wire import TargetList
from service.bootstrap import Services
from service.jobs import Jobs

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["models"])

CONTENT = {FORM_TYPE: FORM, **JOB_CONTENT}


@router.post(
    "/inspect",
    summary="Report on a model without compiling it",
    openapi_extra={"requestBody": {"required": True, "content": CONTENT}},
)
async def inspect(
    request: Request,
    services: UseServices,
    jobs: UseJobs,
    watch: UseWatch,
    wait: Annotated[
        float,
        Query(gt=0, le=600, allow_inf_nan=False, description="Seconds to wait for the report."),
    ] = 120,
) -> dict[str, Any]:
    """Inputs, outputs, dims, and every operator, supported or not and why; `model` and `samples`
    are the digests by which a job names them.

    The model comes as a form, as in /v1/compile, or by digest in a JSON document, as in /v1/jobs.
    """
    model, declared = await _subject(request, jobs, services)
    job = await run_in_thread(jobs.inspect, model, declared, width=width_of(declared))
    report = jobs.report(await watch.wait_for(job, wait), wait)
    samples = {"samples": declared.samples} if declared.samples else {}
    return {"model": model, **samples, **report}


async def _subject(request: Request, jobs: Jobs, services: Services) -> tuple[str, CompileRequest]:
    kind = media_type(request)
    if kind == FORM_TYPE:
        async with receive(request, services.core) as form:
            upload = await run_in_thread(form.store, jobs.store.blobs, width=form.width)
        return upload.model, upload.request
    if kind == JSON_TYPE:
        return await read_job(request, services.settings)
    raise UnsupportedMediaType(
        f"the body is {kind or 'of no declared type'}", hint=f"send {FORM_TYPE} or application/json"
    )


@router.get("/targets", summary="List the targets")
def targets(jobs: UseJobs) -> TargetList:
    """Every known target in the registry's order, with the live workers that compile for it."""
    return TargetList(targets=jobs.targets())
