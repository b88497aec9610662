"""Cancelling: ends queued builds, and marks running ones for their workers."""

from sqlalchemy import update

from relaxd.contract.states import State
from service.core import Core
from service.db.schema import builds
from service.domain import Job
from service.usecases import watching
from service.usecases.ending import CANCELLED


def cancel(core: Core, job_id: str) -> Job:
    """See `Jobs.cancel`."""
    with core.writing() as tx:
        for build in tx.job(job_id).builds:
            if build.state is State.QUEUED:
                tx.end(build, CANCELLED)
            elif build.state is State.RUNNING:
                tx.connection.execute(
                    update(builds).where(builds.c.id == build.id).values(cancel_requested=True)
                )
    return watching.get(core, job_id)
