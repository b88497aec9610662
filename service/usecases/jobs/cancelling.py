"""Cancelling: ends queued builds, and marks running ones for their workers."""

from sqlalchemy import ColumnElement, or_, select, update

from relaxd.contract.states import State
from service.core import Core
from service.db import records, recovery
from service.db.schema import builds
from service.domain import Job
from service.usecases.builds.ending import CANCELLED
from service.usecases.jobs import watching

_AT_A_TIME = 50
"""Builds that one transaction ends: other writers wait for it."""


def cancel(core: Core, job_id: str, tenant: str | None = None) -> Job:
    """See `Jobs.cancel`; a job of one tenant, or of any."""
    if _has_living(core, job_id, tenant):
        with recovery.borrow(core.settings):
            while _cancel_some(core, job_id, tenant):
                pass
    return watching.get(core, job_id, tenant)


def _has_living(core: Core, job_id: str, tenant: str | None) -> bool:
    """True if there is a build to end or to mark: no write begins without one."""
    living = or_(builds.c.state == State.QUEUED, _runs_unmarked())
    query = select(builds.c.id).where(builds.c.job_id == job_id, living).limit(1)
    with core.reading() as tx:
        tx.lock(job_id, tenant)
        return tx.connection.execute(query).one_or_none() is not None


def _runs_unmarked() -> ColumnElement[bool]:
    return (builds.c.state == State.RUNNING) & ~builds.c.cancel_requested


def _cancel_some(core: Core, job_id: str, tenant: str | None) -> bool:
    """Mark the running builds and end some of the queued ones; whether others may be left."""
    with core.writing() as tx:
        tx.lock(job_id, tenant)
        of_job = builds.c.job_id == job_id
        tx.connection.execute(
            update(builds).where(of_job, _runs_unmarked()).values(cancel_requested=True)
        )
        queued = (
            select(builds)
            .where(of_job, builds.c.state == State.QUEUED)
            .order_by(builds.c.position)
            .limit(_AT_A_TIME)
        )
        cancelled = [records.build_from(row) for row in tx.connection.execute(queued)]
        tx.end_all(job_id, cancelled, CANCELLED)
    return len(cancelled) == _AT_A_TIME
