"""Changes of jobs inside one transaction; each checks the transition table and adds its event."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select, update

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

_NEW_EVENTS = insert(events)


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
        query = select(jobs).where(jobs.c.id == job_id)
        row = self.connection.execute(self.with_lock(query)).one_or_none()
        if row is None or tenant not in (None, row.tenant):
            raise UnknownJob(job_id)
        return row

    def job(self, job_id: str, tenant: str | None = None) -> Job:
        """The job, locked as by `lock`; raises UnknownJob."""
        row = self.lock(job_id, tenant)
        rows = self.connection.execute(
            select(builds).where(builds.c.job_id == job_id).order_by(builds.c.position)
        )
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
        counted = (
            update(jobs)
            .where(jobs.c.id == job_id)
            .values(last_seq=jobs.c.last_seq + len(notes))
            .returning(jobs.c.last_seq)
        )
        first = self.connection.execute(counted).scalar_one() - len(notes) + 1
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
        counted = update(counters).where(counters.c.name == counter_of(outcome))
        self.connection.execute(counted.values(value=counters.c.value + number))

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
        rows: Sequence[str] = self.connection.scalars(
            select(builds.c.state).where(builds.c.job_id == job_id).distinct()
        ).all()
        state = job_state([State(row) for row in rows])
        values = {"state": state, "finished_at": self.now if state.terminal else None}
        changed = self.connection.execute(
            update(jobs).where(jobs.c.id == job_id, jobs.c.state != state).values(values)
        ).rowcount
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
