"""Writes a new job with all that belongs to it, in one statement where the database takes one:
each costs the processor more than the rows that it writes.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, insert, text

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.contract.text import sanitize
from relaxd.contract.urgency import Urgency
from service.db import records
from service.db.schema import audit, builds, counters, events, jobs
from service.db.transaction import BUILDS_COUNTED, Note, Transaction, counter_of, finish_note
from service.domain import Build, EventType, Job, Kind, Outcome, job_state

Row = dict[str, Any]

_WRITTEN = {
    jobs: "id kind state model model_name request idempotency_key fingerprint created_at "
    "finished_at last_seq tenant index_digest project priority",
    builds: "id job_id position target capability state action_key cached artifact report profile "
    "numerics error created_at finished_at rung_at tenant deadline due_at",
    events: "job_id seq time type target data",
    audit: "time tenant principal action subject outcome request_id detail",
}
"""The columns that get a value; the others have their defaults."""


def _inserted(table: Table) -> str:
    columns = ", ".join(_WRITTEN[table].split())
    rows = f"jsonb_populate_recordset(CAST(NULL AS {table}), CAST(:{table} AS jsonb))"
    return f"new_{table} AS (INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows})"


_AT_ONCE = text(
    f"WITH {', '.join(map(_inserted, _WRITTEN))} "
    f"UPDATE {counters} SET value = value + :number WHERE name = :counter"
)
"""Foreign keys are checked at the end of the statement."""
_ONE_BY_ONE = {table: insert(table) for table in _WRITTEN}
_SHALLOW = 100
"""Brackets of a document that surely nests less deeply than databases take."""


@dataclass(frozen=True)
class NewJob:
    """A row of `jobs` and its rows of `builds` in order, but for what `create` knows; the first
    event; how builds end that end at once, by target, in documents that are clean; and an entry of
    the audit log.
    """

    request: CompileRequest
    header: Row
    parts: Sequence[Row]
    note: Note
    outcomes: Mapping[str, Outcome]
    urgency: Urgency
    entry: Row | None = None


def create(tx: Transaction, new: NewJob) -> Job:
    """Write the job, its builds, events and entry, and count the builds that have ended."""
    builds_of = [_build(tx, new, part) for part in new.parts]
    state = job_state([State(build["state"]) for build in builds_of])
    notes = _events(tx, new, state)
    job = {
        **new.header,
        "priority": new.urgency.priority,
        "state": state,
        "created_at": tx.now,
        "finished_at": tx.now if state.terminal else None,
        "last_seq": len(notes),
    }
    entries = [new.entry] if new.entry else []
    rows = {"jobs": [job], "builds": builds_of, "events": notes, "audit": entries}
    if not _is_clean([job, new.parts, notes, entries]):
        rows = sanitize(rows)
    _write(tx.connection, rows, new.outcomes.values())
    return _job(new, rows["jobs"][0], rows["builds"])


def _is_clean(document: Any) -> bool:
    """True if `cleaned` would leave it as it is; False also where that takes as long to say."""
    text = json.dumps(document)
    odd = ("\\u0000", "\\ud", "NaN", "Infinity")  # escapes of a NUL and of a surrogate
    deep = text.count("{") + text.count("[") > _SHALLOW
    return not deep and not any(part in text for part in odd)


def _build(tx: Transaction, new: NewJob, part: Row) -> Row:
    """A row that is queued, or has ended at once."""
    outcome = new.outcomes.get(part["target"])
    values = records.outcome_values(outcome or Outcome(State.QUEUED))
    times = {"created_at": tx.now, "rung_at": tx.now, "finished_at": tx.now if outcome else None}
    times |= {"deadline": new.urgency.ends_at(tx.now), "due_at": new.urgency.due_at(tx.now)}
    return {**part, "state": outcome.state if outcome else State.QUEUED, **values, **times}


def _events(tx: Transaction, new: NewJob, state: State) -> list[Row]:
    notes: list[tuple[str | None, Note]] = [(None, new.note)]
    notes += [(target, finish_note(outcome)) for target, outcome in new.outcomes.items()]
    if state.terminal:
        notes.append((None, (EventType.JOB_FINISHED, {"state": state})))
    return tx.event_rows(new.header["id"], 1, notes)


def _write(
    connection: Connection, rows: dict[str, list[Row]], outcomes: Collection[Outcome]
) -> None:
    """The rows by table; all outcomes are successes of the cache."""
    number, counter = len(outcomes), next(map(counter_of, outcomes), "")
    if connection.dialect.name == "postgresql":
        values = {name: json.dumps(part) for name, part in rows.items()}
        connection.execute(_AT_ONCE, {**values, "counter": counter, "number": number})
        return
    for table, statement in _ONE_BY_ONE.items():
        if part := rows[table.name]:
            connection.execute(statement, part)
    if number:
        connection.execute(BUILDS_COUNTED, {"counter": counter, "number": number})


def _job(new: NewJob, row: Row, parts: Sequence[Row]) -> Job:
    """The job as it would be read."""
    same = row["request"] == new.header["request"]
    return Job(
        id=row["id"],
        kind=Kind(row["kind"]),
        state=State(row["state"]),
        created_at=records.moment(row["created_at"]),
        model=row["model"],
        model_name=row["model_name"],
        request=new.request if same else CompileRequest.from_json(row["request"]),
        builds=tuple(
            _as_build(part, new.outcomes.get(record["target"]))
            for part, record in zip(parts, new.parts, strict=True)
        ),
        finished_at=records.maybe(row["finished_at"]),
        tenant=row["tenant"],
        index_digest=row["index_digest"],
        project=row["project"],
        priority=row["priority"],
    )


def _as_build(row: Row, outcome: Outcome | None) -> Build:
    return Build(
        id=row["id"],
        job_id=row["job_id"],
        target=row["target"],
        capability=row["capability"],
        state=State(row["state"]),
        created_at=records.moment(row["created_at"]),
        action_key=row["action_key"],
        cached=row["cached"],
        artifact=outcome.artifact if outcome else None,
        report=row["report"],
        profile=row["profile"],
        numerics=row["numerics"],
        error=outcome.error if outcome else None,
        finished_at=records.maybe(row["finished_at"]),
        tenant=row["tenant"],
        deadline=records.maybe(row["deadline"]),
    )
