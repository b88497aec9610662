"""Endpoints about all jobs of a tenant in brief: a page of them, and a stream of what changes."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sse_starlette.sse import EventSourceResponse

from relaxd.contract.states import Stage, State
from service.api.board import Board, Update
from service.api.context import UseJobs, UsePrincipal
from service.api.tenant_threads import TenantRoute
from service.api.wire import Document, Name
from service.domain import Brief, Queue
from service.usecases.jobs.overview import Search

HEARTBEAT_S = 10

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["jobs"])


class RunningOut(Document):
    """A target that is built now."""

    target: str
    stage: Stage | None


class BriefOut(Document):
    """A job in brief: `builds` counts its builds by state, `running` names some that are built now,
    `position` is the place of its first queued build among the tenant's that the same workers take.
    """

    id: str
    state: State
    name: str | None
    model: str
    created_at: datetime
    finished_at: datetime | None
    builds: dict[State, int]
    cached: int
    running: list[RunningOut]
    position: int | None

    @classmethod
    def of(cls, brief: Brief) -> "BriefOut":
        """From the domain."""
        running = [RunningOut(target=target, stage=stage) for target, stage in brief.running]
        return cls(**{**vars(brief), "builds": dict(brief.builds), "running": running})


class QueueOut(Document):
    """Builds of the tenant that run and wait, the service's live workers, and by job the place of
    its first queued build.
    """

    running: int
    queued: int
    workers: int
    positions: dict[str, int]

    @classmethod
    def of(cls, queue: Queue) -> "QueueOut":
        """From the domain."""
        return cls(**{**vars(queue), "positions": dict(queue.positions)})


class OverviewOut(Document):
    """Jobs in brief, the newest first, and the queue."""

    jobs: list[BriefOut]
    queue: QueueOut


@router.get("/overview", summary="List jobs in brief")
def overview(
    jobs: UseJobs,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    state: State | None = None,
    text: Annotated[
        Name | None, Query(description="Part of the model's name, or the start of a job's id.")
    ] = None,
    before: Annotated[
        str | None,
        Query(description="The id of the last job seen.", max_length=64, pattern=r"^[^\x00]*$"),
    ] = None,
) -> OverviewOut:
    """The newest first, without requests and reports, and how long the queue is."""
    briefs = jobs.overview(Search(limit, state, text or None, before))
    return OverviewOut(
        jobs=[BriefOut.of(brief) for brief in briefs], queue=QueueOut.of(jobs.queue())
    )


@router.get(
    "/overview/events",
    summary="Follow all jobs",
    response_class=EventSourceResponse,
    responses={
        200: {
            "description": "Server-sent events without end: `queue`, whose data is a QueueOut "
            "document, first and whenever it changes, and `job`, a BriefOut document, for each "
            "job that changes.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def follow(request: Request, principal: UsePrincipal) -> Response:
    """Comments are heartbeats. After a lost connection list the jobs anew."""
    board: Board = request.app.state.board
    return EventSourceResponse(
        (_as_sse(update) async for update in board.follow(principal.tenant)),
        ping=HEARTBEAT_S,
        sep="\n",
    )


def _as_sse(update: Update) -> dict[str, str]:
    if isinstance(update, Queue):
        return {"event": "queue", "data": QueueOut.of(update).model_dump_json()}
    return {"event": "job", "data": BriefOut.of(update).model_dump_json()}
