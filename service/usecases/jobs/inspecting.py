"""Inspecting: a worker reports on a model, as a job; the report is kept for the next caller."""

from typing import Any

from relaxd.contract.request import CompileRequest
from service.core import Core
from service.domain import Job, Kind
from service.errors import InspectionFailed, NotFinished
from service.identity import DEFAULT
from service.usecases.jobs import submitting


def begin(core: Core, model: str, request: CompileRequest, tenant: str = DEFAULT) -> Job:
    """See `Jobs.inspect`."""
    return submitting.submit(core, model, request, kind=Kind.INSPECT, tenant=tenant)


def report(job: Job, seconds: float) -> dict[str, Any]:
    """See `Jobs.report`."""
    (build,) = job.builds
    if build.report is not None:
        return build.report
    if build.error:
        raise InspectionFailed(build.error)
    raise NotFinished(
        f"the inspection is still {job.state} after {seconds:g} s",
        hint=build.note or "send the request again: it finds the same inspection",
        job=job.id,
    )
