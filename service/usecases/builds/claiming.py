"""Claiming: a worker leases a queued build, or leaves it to wait for an equal running one."""

from dataclasses import dataclass, replace
from typing import Any

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
from service.usecases.builds import ending, scheduling
from service.usecases.builds.expecting import seconds_of_last_build
from service.usecases.tenants import sharing

FOREIGN = "another"
"""Stands for the build of another tenant that a build waits for, which has to stay unknown."""


@dataclass(frozen=True)
class _Key:
    """A build's action key, and what it is compared by."""

    digest: str
    flight_key: str
    shared: bool


@dataclass(frozen=True)
class Start:
    """Who starts a build, and how many seconds the last one of its model took, None where there was
    none.
    """

    worker: str
    expected_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """The data of the event."""
        if self.expected_seconds is None:
            return {"worker": self.worker}
        return {"worker": self.worker, "expected_seconds": round(self.expected_seconds, 1)}


def take(core: Core, build_id: str, worker: str) -> Claim | None:
    """A claim on the build, or None where there is nothing to do: it is taken, has ended, or now
    waits for an equal one.
    """
    asked_at, claimed = core.clock(), find(core, build_id)
    if claimed is None:
        return None
    job, build = claimed
    try:
        digest = core.compiler.action_key(job.kind, job.model, job.request, build.target).digest
    except CompileError as error:
        _refuse(core, build, Outcome(State.FAILED, error=error.failure))
        return None
    key = _key(core, job.tenant, digest)
    expected = seconds_of_last_build(core, job, build.target)
    while True:
        try:
            with core.writing() as tx:
                claim = _claim(core, tx, build, key, Start(worker, expected))
            return claim and replace(claim, asked_at=asked_at)
        except IntegrityError:
            # An equal build was claimed between our look and our write: this time we see it.
            continue
        except StaleClaim:
            return None


def _key(core: Core, tenant: str, digest: str) -> _Key:
    shared = sharing.shares(core, tenant)
    return _Key(digest, sharing.flight_key_of(tenant, digest, shared=shared), shared)


def find(core: Core, build_id: str) -> tuple[Job, Build] | None:
    """The build and its job; None for one that is not queued."""
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


def _claim(core: Core, tx: Transaction, seen: Build, key: _Key, start: Start) -> Claim | None:
    job = tx.job(seen.job_id)
    build = next(build for build in job.builds if build.id == seen.id)
    if build.state is not State.QUEUED:
        return None
    # The lock makes a holder that is about to end wait until its list of waiting builds can include
    # this one.
    running = (
        select(builds.c.id, builds.c.tenant)
        .where(builds.c.action_key == key.flight_key, builds.c.state == State.RUNNING)
        .with_for_update()
    )
    if holder := tx.connection.execute(running).one_or_none():
        _park(tx, build, key.flight_key, holder.id if holder.tenant == job.tenant else FOREIGN)
        return None
    if build.deadline and build.deadline <= records.moment(tx.now):
        tx.end(build, ending.late_outcome(build.deadline))
        return None
    if not scheduling.enter(tx, job.tenant):
        return None
    fence = build.fence + 1
    note = (
        EventType.BUILD_STARTED,
        {"attempt": build.attempts + 1, "action_key": key.flight_key, **start.to_json()},
    )
    tx.change(
        build,
        State.RUNNING,
        note,
        action_key=key.flight_key,
        fence=fence,
        attempts=build.attempts + 1,
        worker=start.worker,
        waiting_on=None,
        started_at=tx.now,
        lease_until=tx.now + core.settings.lease_s,
    )
    return Claim(
        build_id=build.id,
        job_id=job.id,
        fence=fence,
        kind=job.kind,
        target=build.target,
        model=job.model,
        model_name=job.model_name,
        request=job.request,
        action_key=key.digest,
        flight_key=key.flight_key,
        tenant=job.tenant,
        shared=key.shared,
        project=job.project,
    )


def waits_for(holder: str) -> str:
    """Why a build waits, for people."""
    reason = "waits for the result of an equal build"
    return reason if holder == FOREIGN else f"{reason}, {holder}"


def _park(tx: Transaction, build: Build, flight_key: str, holder: str) -> None:
    if build.waiting_on == holder:
        return
    tx.connection.execute(
        update(builds)
        .where(builds.c.id == build.id)
        .values(action_key=flight_key, waiting_on=holder)
    )
    tx.emit(
        build.job_id,
        build.target,
        (EventType.BUILD_QUEUED, {"reason": waits_for(holder)}),
    )
