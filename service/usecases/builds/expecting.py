"""How long a build may take, by what the last one of the same model took."""

from sqlalchemy import or_, select

from relaxd.contract.states import State
from service.core import Core
from service.db.schema import builds, jobs
from service.domain import Job

_NEWEST_JOBS = 100
"""How many of the tenant's newest jobs are looked at: each claim waits for the answer."""


def seconds_of_last_build(core: Core, job: Job, target: str) -> float | None:
    """Seconds from the start to the end of the newest build for the target that succeeded, of the
    model or of one by its name, of the job's tenant; None where no new job has one. A build that
    was answered from the cache tells nothing.
    """
    newest = (
        select(jobs.c.id, jobs.c.model, jobs.c.model_name, jobs.c.created_at)
        .where(jobs.c.tenant == job.tenant, jobs.c.kind == job.kind)
        .order_by(jobs.c.created_at.desc())
        .limit(_NEWEST_JOBS)
        .subquery()
    )
    is_alike = newest.c.model == job.model
    if job.model_name:
        is_alike = or_(is_alike, newest.c.model_name == job.model_name)
    query = (
        select(builds.c.finished_at - builds.c.started_at)
        .join(newest, newest.c.id == builds.c.job_id)
        .where(is_alike, builds.c.target == target, builds.c.state == State.SUCCEEDED)
        .where(~builds.c.cached, builds.c.started_at.is_not(None))
        .order_by(newest.c.created_at.desc())
        .limit(1)
    )
    with core.reading() as tx:
        seconds: float | None = tx.connection.execute(query).scalar_one_or_none()
    return seconds
