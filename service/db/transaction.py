"""Changes of jobs inside one transaction; each checks the transition table and adds its event."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, insert, select, update

from relaxd.contract.states import State
from service.db import outbox, records
from service.db.schema import CACHED, ENDED, builds, counters, events, jobs
from service.domain import (
    Build,
    Claim,
    EventType,
    HookEvent,
    Job,
    Kind,
    Outcome,
    job_state,
)
from service.errors import StaleClaim, UnknownJob

Note = tuple[EventType, dict[str, Any]]

# Made once: to make them takes as long as to execute them, while others wait for the lock.
_NEW_EVENTS = insert(events)
_JOB = select(jobs).where(jobs.c.id == bindparam("job"))
_JOB_LOCKED = _JOB.with_for_update()
_BUILDS = select(builds).where(builds.c.job_id == bindparam("job")).order_by(builds.c.position)
_STATES = select(builds.c.state).where(builds.c.job_id == bindparam("job")).distinct()
_EVENTS_COUNTED = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(last_seq=jobs.c.last_seq + bindparam("number"))
    .returning(jobs.c.last_seq)
)
BUILDS_COUNTED = (
    update(counters)
    .where(counters.c.name == bindparam("counter"))
    .values(value=counters.c.value + bindparam("number"))
)
_ALIGNED = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.state != bindparam("to"))
    .values(state=bindparam("to"), finished_at=bindparam("at"))
)


def counter_of(outcome: Outcome) -> str:
    """The counter of builds that end so."""
    return ENDED + (CACHED if outcome.cached else outcome.state.value)


def finish_note(outcome: Outcome) -> Note:
    """The event of a build that ends so."""
    values = records.outcome_values(outcome)
    data = {name: values[name] for name in ("cached", "artifact", "error")}
    return EventType.BUILD_FINISHED, {"state": outcome.state, **data}


class Transaction:
    """One open transaction and the time it happens at; it locks a job before any of the job's
    builds.
    """

    def __init__(self, connection: Connection, now: float, *, writes: bool) -> None:
        self.connection = connection
        self.now = now
        self._writes = writes

    def with_lock(self, query: Select[Any]) -> Select[Any]:
        """The query, its rows locked against other writers in a writing transaction."""
        return query.with_for_update() if self._writes else query

    def lock(self, job_id: str, tenant: str | None = None) -> Row[Any]:
        """The row of the job, locked against other writers in a writing transaction; raises
        UnknownJob, also for a job of another tenant than the one given.
        """
        query = _JOB_LOCKED if self._writes else _JOB
        row = self.connection.execute(query, {"job": job_id}).one_or_none()
        if row is None or tenant not in (None, row.tenant):
            raise UnknownJob(job_id)
        return row

    def job(self, job_id: str, tenant: str | None = None) -> Job:
        """The job, locked as by `lock`; raises UnknownJob."""
        row = self.lock(job_id, tenant)
        rows = self.connection.execute(_BUILDS, {"job": job_id})
        return records.job_from(row, [records.build_from(build) for build in rows])

    def build(self, job_id: str, build_id: str) -> Build:
        """One build of the job, which gets locked."""
        return next(build for build in self.job(job_id).builds if build.id == build_id)

    def require_claim(self, claim: Claim) -> Build:
        """The build that the claim holds; raises StaleClaim if it holds it no longer."""
        build = self.build(claim.job_id, claim.build_id)
        if build.state is not State.RUNNING or build.fence != claim.fence:
            raise StaleClaim(f"build {claim.build_id} is no longer held under fence {claim.fence}")
        return build

    def emit(self, job_id: str, target: str | None, *notes: Note) -> None:
        """Append events to the job."""
        self._append(job_id, [(target, note) for note in notes])

    def _append(self, job_id: str, notes: Sequence[tuple[str | None, Note]]) -> None:
        if not notes:
            return
        arguments = {"job": job_id, "number": len(notes)}
        first = self.connection.execute(_EVENTS_COUNTED, arguments).scalar_one() - len(notes) + 1
        self.connection.execute(_NEW_EVENTS, self.event_rows(job_id, first, notes))

    def event_rows(
        self, job_id: str, first: int, notes: Sequence[tuple[str | None, Note]]
    ) -> list[dict[str, Any]]:
        """Rows of `events` from the seq `first` on, of notes about targets or the job."""
        return [
            {
                "job_id": job_id,
                "seq": first + offset,
                "time": self.now,
                "type": kind,
                "target": target,
                "data": data,
            }
            for offset, (target, (kind, data)) in enumerate(notes)
        ]

    def change(self, build: Build, to: State, *notes: Note, **values: Any) -> None:
        """Compare-and-set the build's state and columns, append events, and bring the job's state
        into line; raises StaleClaim.
        """
        self._set(build, to, values)
        self.emit(build.job_id, build.target, *notes)
        self._align(build.job_id)

    def _set(self, build: Build, to: State, values: dict[str, Any]) -> None:
        if not build.state.may_become(to):
            raise StaleClaim(f"build {build.id} is {build.state} and cannot become {to}")
        unchanged = (
            (builds.c.id == build.id)
            & (builds.c.state == build.state)
            & (builds.c.fence == build.fence)
        )
        if (
            self.connection.execute(
                update(builds).where(unchanged).values(state=to, **values)
            ).rowcount
            != 1
        ):
            raise StaleClaim(f"build {build.id} changed meanwhile")

    def end(self, build: Build, outcome: Outcome, **columns: Any) -> None:
        """Bring the build to a terminal state for good, and set columns; raises StaleClaim."""
        self.end_all(build.job_id, [build], outcome, **columns)

    def end_all(
        self, job_id: str, ended: Sequence[Build], outcome: Outcome, **columns: Any
    ) -> None:
        """Bring builds of one job to a terminal state for good, in time linear in their number;
        raises StaleClaim.
        """
        if not ended:
            return
        values = records.outcome_values(outcome)
        values |= {"finished_at": self.now, "waiting_on": None, "lease_until": None, **columns}
        for build in ended:
            self._set(build, outcome.state, values)
        self._append(job_id, [(build.target, finish_note(outcome)) for build in ended])
        self._align(job_id)
        self._count_ended(outcome, len(ended))

    def _count_ended(self, outcome: Outcome, number: int) -> None:
        """Count builds that have ended so, last of all: from here to the commit, other builds wait
        for the counter to end.
        """
        arguments = {"counter": counter_of(outcome), "number": number}
        self.connection.execute(BUILDS_COUNTED, arguments)

    def requeue(self, build: Build, reason: str, *, attempts: int) -> None:
        """Take a running build from its worker and put it back into the queue; raises
        StaleClaim.
        """
        note = (EventType.BUILD_QUEUED, {"reason": reason})
        self.change(
            build,
            State.QUEUED,
            note,
            attempts=attempts,
            fence=build.fence + 1,
            stage=None,
            worker=None,
            lease_until=None,
            rung_at=self.now,
        )

    def _align(self, job_id: str) -> None:
        rows: Sequence[str] = self.connection.scalars(_STATES, {"job": job_id}).all()
        state = job_state([State(row) for row in rows])
        arguments = {"job": job_id, "to": state, "at": self.now if state.terminal else None}
        changed = self.connection.execute(_ALIGNED, arguments).rowcount
        if changed and state.terminal:
            self.emit(job_id, None, (EventType.JOB_FINISHED, {"state": state}))
            self.post_finished(job_id)

    def post_finished(self, job_id: str) -> None:
        """Have webhooks told of a compile job that has ended."""
        row, event = self.lock(job_id), HookEvent.JOB_FINISHED
        if row.kind != Kind.COMPILE or not outbox.listeners(self.connection, row.tenant, event):
            return
        query = select(builds.c.target, builds.c.state).where(builds.c.job_id == job_id)
        rows = self.connection.execute(query.order_by(builds.c.position))
        ended = [{"target": one.target, "state": one.state} for one in rows]
        data = {"job": job_id, "state": row.state, "name": row.model_name, "builds": ended}
        outbox.post(self.connection, self.now, row.tenant, event, data)
