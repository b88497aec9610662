"""The trace of a job: where its request's trace goes on, and how long its builds were queued."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import or_, select

from relaxd.errors import RelaxdError
from service.core import Core
from service.db.schema import events
from service.domain import Build, EventType, Outcome
from service.tracing import Span

TRACEPARENT = "traceparent"
"""In the data of a job's first event, where its request was traced."""

JOB, BUILD, TARGET, ENDING = "relaxd.job", "relaxd.build", "relaxd.target", "relaxd.ending"

_TURNS = (EventType.JOB_QUEUED, EventType.BUILD_QUEUED, EventType.BUILD_STARTED)


@dataclass(frozen=True)
class Origin:
    """Where a build comes from: its request's span, and when it entered the queue last, in seconds
    since the epoch, for the claim at `claimed_at`.
    """

    traceparent: str | None
    queued_at: float
    claimed_at: float


@contextmanager
def submission(core: Core) -> Iterator[Span]:
    """The span of a submission, which the job's first event will name."""
    span = core.tracer.begin("submit")
    try:
        with core.tracer.active(span):
            yield span
    except RelaxdError as error:
        span.fail(error.code)
        raise
    finally:
        span.end()


def origin_of(core: Core, job_id: str, target: str) -> Origin:
    """The origin of the build that runs, or has ended."""
    query = (
        select(events.c.type, events.c.time, events.c.data)
        .where(events.c.job_id == job_id, events.c.type.in_(_TURNS))
        .where(or_(events.c.target.is_(None), events.c.target == target))
        .order_by(events.c.seq)
    )
    with core.reading() as tx:
        first, *turns = tx.connection.execute(query).all()
    since, queued_at, claimed_at = first.time, first.time, first.time
    for turn in turns:
        if turn.type == EventType.BUILD_STARTED:
            queued_at, claimed_at, since = since or turn.time, turn.time, None
        else:
            since = since or turn.time
    return Origin(first.data.get(TRACEPARENT), queued_at, claimed_at)


def record_shared(core: Core, build: Build, outcome: Outcome) -> None:
    """Trace a build that ended with the result of an equal one, without a worker of its own."""
    if not core.tracer.enabled:
        return
    origin = origin_of(core, build.job_id, build.target)
    attributes = {**describe(build.job_id, build.id, build.target), ENDING: "cached"}
    span = core.tracer.begin(
        "wait for an equal build",
        attributes,
        parent=origin.traceparent,
        start=build.created_at.timestamp(),
    )
    if outcome.error:
        span.note({ENDING: outcome.state.value})
        span.fail(outcome.error.code)
    span.end(core.clock())


def describe(job_id: str, build_id: str, target: str) -> dict[str, str]:
    """The attributes by which spans of a build are found."""
    return {JOB: job_id, BUILD: build_id, TARGET: target}
