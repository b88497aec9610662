"""Endpoints about jobs: submit, list, show, cancel, follow, read the log."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from sse_starlette.sse import EventSourceResponse

from relaxd.contract.states import State
from relaxd.contract.urgency import HIGHEST, LOWEST, Urgency
from service.api.audit import change_by, record_success
from service.api.context import UseJobs, UsePrincipal, UseServices, UseWatch
from service.api.documents import JOB_CONTENT, read_job, width_of
from service.api.tenant_threads import WIDTH, TenantRoute, run_in_thread
from service.api.uploads import FORM, FORM_TYPE, receive
from service.api.watching import as_sse, log_lines
from service.api.wire import PROJECT, FailedGatesIn, JobList, JobOut, Name
from service.domain import FailedGate, Job
from service.usecases.jobs import gating
from service.usecases.store.holdings import Unheld

HEARTBEAT_S = 10
MAX_WAIT_S = 3600

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["jobs"])

JobId = Annotated[str, Path(description="The job's id.", max_length=64)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        description="A repeated request with this key finds the first one's job.",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
    ),
]
Wait = Annotated[
    float | None,
    Query(
        ge=0, le=MAX_WAIT_S, allow_inf_nan=False, description="Seconds to wait for the job's end."
    ),
]
WaitForWorker = Annotated[
    bool,
    Query(
        description="Queue builds even if no running worker compiles for their target; if false, "
        "such a request is refused with `worker.none` or `worker.target`."
    ),
]
OfProject = Annotated[
    str,
    Query(
        description="The project that its usage is counted for.", max_length=100, pattern=PROJECT
    ),
]
Priority = Annotated[
    int,
    Query(ge=LOWEST, le=HIGHEST, description="Which of the tenant's builds go first: the highest."),
]
DeadlineText = Annotated[
    str | None,
    Query(
        max_length=40,
        description="When an attempt may begin at the latest: `90` (seconds), `30m`, `2h`, or a "
        "time as `2026-01-31T08:00:00Z`. A build that still waits then ends as `timed_out` with "
        "`build.deadline`.",
    ),
]
EVENT_STREAM = {
    "type": "string",
    "contentMediaType": "text/event-stream",
    "contentSchema": {"$ref": "#/components/schemas/EventOut"},
}
LOCATION = {"Location": {"description": "The job's path.", "schema": {"type": "string"}}}


async def _answer(request: Request, response: Response, job: Job) -> JobOut:
    request.state.job_id = job.id
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return await _describe(job)


async def _describe(job: Job) -> JobOut:
    """The job as a document, which is made in a thread where that takes long."""
    if (width := width_of(job.request)) == WIDTH:
        return JobOut.of(job)
    return await run_in_thread(JobOut.of, job, width=width)


@router.post(
    "/compile",
    status_code=202,
    summary="Send a model and have it compiled",
    responses={
        200: {"model": JobOut, "description": "The job, which has ended.", "headers": LOCATION},
        202: {"headers": LOCATION},
    },
    openapi_extra={"requestBody": {"required": True, "content": {FORM_TYPE: FORM}}},
)
async def compile_model(
    request: Request,
    response: Response,
    services: UseServices,
    jobs: UseJobs,
    watch: UseWatch,
    principal: UsePrincipal,
    wait: Wait = None,
    wait_for_worker: WaitForWorker = True,
    project: OfProject = "",
    priority: Priority = 0,
    deadline: DeadlineText = None,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """202 and the job as it stands; with `wait`, 200 and the job if it ends within that time,
    whatever its outcome.
    """
    change, urgency = change_by(request, status=202), Urgency.of(priority, deadline)
    async with receive(request, services.core) as form:

        def store_and_submit() -> Job:
            unheld = Unheld(principal.tenant, form.reserved)
            sent = form.store(jobs.store.blobs, unheld)
            return jobs.with_blobs(unheld).submit(
                sent.model,
                sent.request,
                idempotency_key,
                sent.name,
                wait_for_worker,
                change,
                project,
                urgency,
            )

        job = await run_in_thread(store_and_submit, width=form.width)
    record_success(request, change)
    if wait is not None:
        job = await watch.wait_for(job, wait)
        response.status_code = 200 if job.state.terminal else 202
    return await _answer(request, response, job)


@router.post(
    "/jobs",
    status_code=202,
    summary="Compile a model that is in the store",
    responses={202: {"headers": LOCATION}},
    openapi_extra={"requestBody": {"required": True, "content": JOB_CONTENT}},
)
async def submit(
    request: Request,
    response: Response,
    services: UseServices,
    jobs: UseJobs,
    name: Annotated[Name | None, Query(description="The model's name, for people.")] = None,
    wait_for_worker: WaitForWorker = True,
    project: OfProject = "",
    priority: Priority = 0,
    deadline: DeadlineText = None,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """Upload the model under /v2/ first; 202 and the job as it stands."""
    urgency = Urgency.of(priority, deadline)
    model, declared = await read_job(request, services.settings)
    change = change_by(request, status=202)
    known = (idempotency_key, name, wait_for_worker, change, project, urgency)
    submission = partial(jobs.submit, model, declared, *known)
    job = await run_in_thread(submission, width=width_of(declared))
    record_success(request, change)
    return await _answer(request, response, job)


@router.post("/jobs/{job_id}/gates", summary="Report failed gates", status_code=204)
def report_gates(
    request: Request,
    services: UseServices,
    principal: UsePrincipal,
    job_id: JobId,
    body: FailedGatesIn,
) -> None:
    """Webhooks are told that the build failed a client's gates; the job stays as it is."""
    change = change_by(request, status=204)
    failed = [FailedGate(one.gate, one.result) for one in body.failed]
    gating.report_failed(
        services.core, principal.tenant, job_id, body.target, failed, body.baseline, change
    )
    record_success(request, change)


@router.get("/jobs", summary="List jobs")
def list_jobs(
    jobs: UseJobs, limit: Annotated[int, Query(ge=1, le=1000)] = 50, state: State | None = None
) -> JobList:
    """The newest first."""
    return JobList(jobs=[JobOut.of(job) for job in jobs.list(limit, state)])


@router.get("/jobs/{job_id}", summary="Show a job")
async def show(jobs: UseJobs, watch: UseWatch, job_id: JobId, wait: Wait = None) -> JobOut:
    """With `wait`, once the job has ended or that time is up."""
    job = await run_in_thread(jobs.get, job_id)
    return await _describe(await watch.wait_for(job, wait or 0))


@router.post("/jobs/{job_id}:cancel", summary="Cancel a job")
def cancel(jobs: UseJobs, job_id: JobId) -> JobOut:
    """Queued builds end at once, running ones within about a second; a job that has ended stays as
    it is.
    """
    return JobOut.of(jobs.cancel(job_id))


@router.get(
    "/jobs/{job_id}/events",
    summary="Follow a job",
    response_class=EventSourceResponse,
    responses={
        200: {
            "description": "Server-sent events: `id` is the event's seq, `event` its type, `data` "
            "an EventOut document.",
            "content": {"text/event-stream": {"schema": EVENT_STREAM}},
        },
        204: {"description": "The job has ended and every event has been sent."},
    },
)
async def events(
    jobs: UseJobs,
    watch: UseWatch,
    job_id: JobId,
    last_event_id: Annotated[
        str | None, Header(pattern=r"^\d{1,18}$", description="Tell the events after this one.")
    ] = None,
) -> Response:
    """Past events first, then as they happen; the stream ends after the job's last event. Comments
    are heartbeats.
    """
    after = int(last_event_id or 0)
    job = await run_in_thread(jobs.get, job_id)
    if job.state.terminal and not await run_in_thread(jobs.events, job_id, after):
        return Response(status_code=204)
    return EventSourceResponse(as_sse(watch.follow(job_id, after)), ping=HEARTBEAT_S, sep="\n")


@router.get("/jobs/{job_id}/logs", summary="Read a job's log", response_class=PlainTextResponse)
def logs(
    jobs: UseJobs, job_id: JobId, target: Annotated[str | None, Query(max_length=4096)] = None
) -> StreamingResponse:
    """The log of a job, of one target or of all, one line for each event."""
    return StreamingResponse(log_lines(jobs, job_id, target), media_type="text/plain")
