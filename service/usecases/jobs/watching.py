"""Watching: jobs as they stand, their events, and waiting for their end."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select

from relaxd.contract.states import State
from service.core import Core
from service.db import records
from service.db.schema import builds, events, jobs
from service.domain import Build, Event, Job, Kind, Mark
from service.usecases.builds.claiming import waits_for
from service.usecases.builds.fleet import pools_of, served_capabilities, waits_for_pool
from service.usecases.builds.scheduling import positions
from service.usecases.store.dumping import with_dumps
from service.usecases.store.indexing import index_of

_AT_A_TIME = 500
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


def get(core: Core, job_id: str, tenant: str | None = None) -> Job:
    """See `Jobs.get`; of one tenant, or of any."""
    with core.reading() as tx:
        job = tx.job(job_id, tenant)
    return replace(_annotated(core, [with_dumps(core, job)])[0], index=index_of(core, job))


def newest(core: Core, limit: int, state: State | None, tenant: str | None = None) -> list[Job]:
    """See `Jobs.list`; of one tenant, or of all."""
    query = (
        select(jobs)
        .where(jobs.c.kind == Kind.COMPILE)
        .order_by(jobs.c.created_at.desc(), jobs.c.id)
        .limit(limit)
    )
    if state:
        query = query.where(jobs.c.state == state)
    if tenant:
        query = query.where(jobs.c.tenant == tenant)
    with core.reading() as tx:
        rows = tx.connection.execute(query).all()
        wanted = (
            select(builds)
            .where(builds.c.job_id.in_([row.id for row in rows]))
            .order_by(builds.c.position)
        )
        notes = defaultdict(list)
        for row in tx.connection.execute(wanted):
            notes[row.job_id].append(records.build_from(row))
    return _annotated(core, [records.job_from(row, notes[row.id]) for row in rows])


def marks(core: Core, job_ids: Sequence[str]) -> dict[str, Mark]:
    """See `Jobs.marks`."""
    marked: dict[str, Mark] = {}
    with core.reading() as tx:
        for start in range(0, len(job_ids), _AT_A_TIME):
            query = select(jobs.c.id, jobs.c.state, jobs.c.last_seq).where(
                jobs.c.id.in_(job_ids[start : start + _AT_A_TIME])
            )
            for row in tx.connection.execute(query):
                marked[row.id] = Mark(State(row.state), row.last_seq)
    return marked


def history(
    core: Core, job_id: str, after: int, limit: int | None, tenant: str | None = None
) -> list[Event]:
    """See `Jobs.events`; of a job of one tenant, or of any."""
    query = (
        select(events)
        .where(events.c.job_id == job_id, events.c.seq > after)
        .order_by(events.c.seq)
        .limit(limit)
    )
    with core.reading() as tx:
        tx.lock(job_id, tenant)
        return [records.event_from(row) for row in tx.connection.execute(query)]


def wait(core: Core, job_id: str, seconds: float, tenant: str | None = None) -> Job:
    """See `Jobs.wait`; for a job of one tenant, or of any."""
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE_S
    while (
        not (job := get(core, job_id, tenant)).state.terminal
        and (left := until - time.monotonic()) > 0
    ):
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
    return job


def _annotated(core: Core, annotated: list[Job]) -> list[Job]:
    """The jobs, with the reason for the wait and the place noted at every queued build."""
    if not any(build.state is State.QUEUED for job in annotated for build in job.builds):
        return annotated
    able, declared = served_capabilities(core), pools_of(core)
    positions_of: dict[str, int] = {}
    with core.reading() as tx:
        for tenant in {job.tenant for job in annotated}:
            positions_of |= positions(tx, tenant)
    return [
        replace(
            job,
            builds=tuple(
                replace(
                    build,
                    note=_note(core, build, able, declared),
                    position=positions_of.get(build.id),
                )
                for build in job.builds
            ),
        )
        for job in annotated
    ]


def _note(
    core: Core, build: Build, able: frozenset[str], declared: Mapping[str, str]
) -> str | None:
    if build.state is not State.QUEUED:
        return None
    if build.waiting_on:
        return waits_for(build.waiting_on)
    if build.capability not in able and (pool := declared.get(build.capability)):
        return waits_for_pool(pool)
    if not able:
        return "no worker is running; start one with `relaxd worker`"
    if build.capability not in able:
        others = ", ".join(sorted(able - {Kind.INSPECT.value}))
        return (
            f"no running worker compiles for {build.target}; the running ones compile for {others}"
        )
    if core.doorbell.trouble:
        return "the message broker does not answer, so no worker hears of the build until it does"
    return None
