"""Ends builds or returns them to the queue, and settles the equal builds that wait for them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select

from relaxd.contract.failures import Failure
from relaxd.contract.states import State
from service.core import Core
from service.db import records
from service.db.schema import builds
from service.db.transaction import Transaction
from service.domain import Build, Claim, Outcome
from service.usecases.builds import tracing
from service.usecases.store import grants, indexing
from service.usecases.store.dumping import lacks_dump

CANCELLED = Outcome(State.CANCELLED)


def late_outcome(deadline: datetime) -> Outcome:
    """The end of a build whose deadline passed before an attempt began."""
    failure = Failure(
        code="build.deadline",
        stage="",
        message=f"no worker could begin before the deadline, {deadline:%Y-%m-%d %H:%M:%S} UTC",
        hint="submit it again with a later deadline, or a higher priority",
        details={"deadline": deadline.isoformat()},
    )
    return Outcome(State.TIMED_OUT, error=failure)


def finish(core: Core, claim: Claim, outcome: Outcome) -> None:
    """End the claimed build and settle those that waited for it; raises StaleClaim."""
    has_dump = claim.request.options.dump
    grants.give(core, claim.tenant, outcome, shared=claim.shared, has_dump=has_dump)
    with core.writing() as tx:
        build = tx.require_claim(claim)
        tx.end(build, outcome)
    if outcome.artifact:
        indexing.publish(core, build.job_id)
    settle(core, build, outcome)


def release(core: Core, claim: Claim, failure: Failure, *, attempted: bool) -> None:
    """Give the claimed build back, because of `failure`; without `attempted` it does not count as
    an attempt; raises StaleClaim.
    """
    with core.writing() as tx:
        build = tx.require_claim(claim)
        outcome = take_back(core, tx, build, failure, attempted=attempted)
    follow_up(core, build, outcome)


def take_back(
    core: Core, tx: Transaction, build: Build, failure: Failure, *, attempted: bool = True
) -> Outcome | None:
    """Put a running build back into the queue (None), or end it if it was cancelled or has no
    attempt left (its outcome).
    """
    if build.cancel_requested:
        outcome = CANCELLED
    elif attempted and build.attempts >= core.settings.max_attempts:
        outcome = Outcome(State.FAILED, error=failure)
    else:
        tx.requeue(
            build,
            f"{failure.message}: trying again",
            attempts=build.attempts if attempted else build.attempts - 1,
        )
        return None
    tx.end(build, outcome)
    return outcome


def follow_up(core: Core, build: Build, outcome: Outcome | None) -> None:
    """After `take_back` is committed: ring for the queued build, or settle those that waited for
    the ended one.
    """
    if outcome is None:
        core.doorbell.ring(build.id, build.capability)
    else:
        settle(core, build, outcome)


def settle(core: Core, ended: Build, outcome: Outcome) -> None:
    """Give the builds that wait for an equal of `ended` its result; if it was cancelled, have one
    of them take over. A build that wants a dump, which the result lacks, has to run itself.
    """
    waiting = _waiting(core, ended)
    if outcome.state is State.CANCELLED:
        for build in waiting[:1]:
            core.doorbell.ring(build.id, build.capability)
        return
    shared = replace(outcome, cached=outcome.state is State.SUCCEEDED)
    for build in waiting:
        if build.tenant != ended.tenant:
            grants.give(core, build.tenant, outcome, shared=True)
        shared = grants.named_for(build.tenant, shared)
        with core.writing() as tx:
            job = tx.job(build.job_id)
            fresh = next(fresh for fresh in job.builds if fresh.id == build.id)
            if not (fresh.state is State.QUEUED and fresh.waiting_on):
                continue
            again = shared.artifact and lacks_dump(
                core, build.tenant, job.request, shared.artifact.digest
            )
            if not again:
                tx.end(fresh, shared)
        if again:
            core.doorbell.ring(build.id, build.capability)
            continue
        tracing.record_shared(core, build, outcome)
        if shared.artifact:
            indexing.publish(core, build.job_id)


def _waiting(core: Core, ended: Build) -> Sequence[Build]:
    equal = (
        (builds.c.action_key == ended.action_key)
        & (builds.c.state == State.QUEUED)
        & builds.c.waiting_on.is_not(None)
    )
    with core.reading() as tx:
        return [
            records.build_from(row)
            for row in tx.connection.execute(
                select(builds).where(equal).order_by(builds.c.created_at)
            )
        ]
