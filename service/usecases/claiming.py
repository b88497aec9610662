"""Claiming: a worker leases a queued build, or leaves it to wait for an equal running one."""

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from compiler.errors import CompileError
from relaxd.contract.states import State
from service.core import Core
from service.db import records
from service.db.schema import builds
from service.db.transaction import Transaction
from service.domain import Build, Claim, EventType, Job, Outcome
from service.errors import StaleClaim


def take(core: Core, build_id: str, worker: str) -> Claim | None:
    """A claim on the build, or None where there is nothing to do: it is taken, has ended, or now
    waits for an equal one.
    """
    found = _find(core, build_id)
    if found is None:
        return None
    job, build = found
    try:
        key = core.compiler.action_key(job.kind, job.model, job.request, build.target).digest
    except CompileError as error:
        _refuse(core, build, Outcome(State.FAILED, error=error.failure))
        return None
    while True:
        try:
            with core.writing() as tx:
                return _claim(core, tx, build, key, worker)
        except IntegrityError:
            # An equal build was claimed between our look and our write: this time we see it.
            continue
        except StaleClaim:
            return None


def _find(core: Core, build_id: str) -> tuple[Job, Build] | None:
    with core.reading() as tx:
        row = tx.connection.execute(select(builds).where(builds.c.id == build_id)).one_or_none()
        if row is None or row.state != State.QUEUED:
            return None
        return tx.job(row.job_id), records.build_from(row)


def _refuse(core: Core, build: Build, outcome: Outcome) -> None:
    with core.writing() as tx:
        fresh = tx.build(build.job_id, build.id)
        if fresh.state is State.QUEUED:
            tx.end(fresh, outcome)


def _claim(core: Core, tx: Transaction, seen: Build, key: str, worker: str) -> Claim | None:
    job = tx.job(seen.job_id)
    build = next(build for build in job.builds if build.id == seen.id)
    if build.state is not State.QUEUED:
        return None
    # The lock makes a holder that is about to end wait until its list of waiting builds can include
    # this one.
    running = (
        select(builds.c.id)
        .where(builds.c.action_key == key, builds.c.state == State.RUNNING)
        .with_for_update()
    )
    if holder := tx.connection.scalars(running).one_or_none():
        _park(tx, build, key, holder)
        return None
    fence = build.fence + 1
    note = (
        EventType.BUILD_STARTED,
        {"worker": worker, "attempt": build.attempts + 1, "action_key": key},
    )
    tx.change(
        build,
        State.RUNNING,
        note,
        action_key=key,
        fence=fence,
        attempts=build.attempts + 1,
        worker=worker,
        waiting_on=None,
        started_at=tx.now,
        lease_until=tx.now + core.settings.lease_s,
    )
    return Claim(
        build.id, job.id, fence, job.kind, build.target, job.model, job.model_name, job.request, key
    )


def _park(tx: Transaction, build: Build, key: str, holder: str) -> None:
    if build.waiting_on == holder:
        return
    tx.connection.execute(
        update(builds).where(builds.c.id == build.id).values(action_key=key, waiting_on=holder)
    )
    tx.emit(
        build.job_id,
        build.target,
        (EventType.BUILD_QUEUED, {"reason": f"waits for the result of an equal build, {holder}"}),
    )
