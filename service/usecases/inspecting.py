"""Inspecting: a worker reports on a model, as a job; the report is kept for the next caller."""

from typing import Any

from relaxd.contract.request import CompileRequest
from service.core import Core
from service.domain import Kind
from service.errors import InspectionFailed, NotFinished
from service.usecases import submitting, watching


def inspect(core: Core, model: str, request: CompileRequest, seconds: float) -> dict[str, Any]:
    """See `Jobs.inspect`."""
    job = submitting.submit(core, model, request, kind=Kind.INSPECT)
    job = watching.wait(core, job.id, seconds)
    (build,) = job.builds
    if build.report is not None:
        return build.report
    if build.error:
        raise InspectionFailed(build.error)
    raise NotFinished(
        f"the inspection is {job.state} after {seconds:g} s",
        hint=build.note or "ask again in a while",
        job=job.id,
    )
