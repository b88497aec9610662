"""Sweeping: re-queues builds of silent workers, rings again for queued builds, and ends those whose
deadline has passed.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Select, and_, select, update

from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage, State
from service.core import Core
from service.db import records
from service.db.schema import builds
from service.db.transaction import Transaction
from service.usecases.builds import scheduling
from service.usecases.builds.ending import follow_up, late_outcome, take_back


def reclaim(core: Core) -> int:
    """Take every running build whose lease has expired from its worker; how many."""
    with core.reading() as tx:
        late = select(builds.c.job_id, builds.c.id).where(
            builds.c.state == State.RUNNING, builds.c.lease_until < tx.now
        )
        late_builds = tx.connection.execute(late).all()
    return sum(_reclaim(core, row.job_id, row.id) for row in late_builds)


def _reclaim(core: Core, job_id: str, build_id: str) -> bool:
    with core.writing() as tx:
        build = tx.build(job_id, build_id)
        query = select(builds.c.lease_until).where(builds.c.id == build.id).with_for_update()
        lease_until = tx.connection.execute(query).scalar_one()
        if build.state is not State.RUNNING or lease_until >= tx.now:
            return False
        failure = Failure(
            code="worker.lost",
            stage=build.stage or Stage.LOAD,
            message=f"worker {build.worker} stopped responding in attempt {build.attempts} of "
            f"{core.settings.max_attempts}",
            hint="see the worker's log: the machine may have run out of memory",
            retryable=True,
        )
        outcome = take_back(core, tx, build, failure)
    follow_up(core, build, outcome)
    return True


def ring_again(
    core: Core, capabilities: Collection[str], slots: int, elsewhere: Collection[str] = ()
) -> int:
    """Ring for the oldest queued builds that could run and were not answered in a while, one a free
    slot; how many.

    elsewhere: targets of which another worker executes the builds, and this one does not.
    """
    if slots <= 0:
        return 0

    def lost(tx: Transaction) -> Select[str, str]:
        query = scheduling.ready(tx, capabilities).where(
            builds.c.rung_at <= tx.now - core.settings.ring_after_s
        )
        if elsewhere:
            query = query.where(scheduling.leave_to_others(tx, elsewhere))
        return query.order_by(builds.c.created_at, builds.c.id).limit(slots)

    with core.reading() as tx:  # no write begins where there are none
        if not tx.connection.execute(lost(tx)).first():
            return 0
    with core.writing() as tx:
        build_ids = tx.connection.execute(lost(tx).with_for_update(skip_locked=True)).all()
        tx.connection.execute(
            update(builds)
            .where(builds.c.id.in_([row.id for row in build_ids]))
            .values(rung_at=tx.now)
        )
    for row in build_ids:
        core.doorbell.ring(row.id, row.capability)
    return len(build_ids)


def end_late(core: Core) -> int:
    """End every queued build whose deadline has passed, but for those whose result an equal one is
    about to bring; how many.
    """
    with core.reading() as tx:
        late = select(builds.c.job_id, builds.c.id).where(_is_late(tx))
        rows = tx.connection.execute(late.order_by(builds.c.deadline)).all()
    return sum(_end_late(core, row.job_id, row.id) for row in rows)


def _is_late(tx: Transaction) -> ColumnElement[bool]:
    is_queued = builds.c.state == State.QUEUED
    return and_(is_queued, builds.c.deadline <= tx.now, ~scheduling.has_running_equal())


def _end_late(core: Core, job_id: str, build_id: str) -> bool:
    with core.writing() as tx:
        build = tx.build(job_id, build_id)
        query = select(builds.c.deadline).where(builds.c.id == build_id, _is_late(tx))
        deadline = tx.connection.execute(query).scalar_one_or_none()
        if deadline is not None:
            tx.end(build, late_outcome(records.moment(deadline)))
    return deadline is not None
