"""A database with a hundred thousand ended jobs, a backlog and some running builds."""

import psycopg
from sqlalchemy import text

from service.db.engine import Database

JOBS = 100_000
QUEUED, RUNNING, OLD = 1_000, 20, 30

_SERIES = {
    "sqlite": "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series "
    "WHERE n < {count}) {insert} FROM series",
    "postgresql": "{insert} FROM generate_series(1, {count}) AS series(n)",
}
_STATE = (
    f"CASE WHEN n > {JOBS - QUEUED} THEN 'queued' WHEN n > {JOBS - QUEUED - RUNNING} THEN "
    "'running' WHEN n % 1000 = 0 THEN 'failed' ELSE 'succeeded' END"
)
_ENDED = (
    f"CASE WHEN n > {JOBS - QUEUED - RUNNING} THEN NULL WHEN n <= {OLD} THEN 1600000000.0 + n "
    "ELSE 1699000000.0 + n END"
)
_NAME = "'j' || n"
_KEY = "'sha256:key' || n"


def fill(db: Database) -> None:
    """Add the rows to the tables, and do what a server's housekeeping does."""
    kind = db.url.get_backend_name()
    with db.write() as connection:
        for insert in _inserts():
            connection.execute(text(_SERIES[kind].format(insert=insert, count=JOBS)))
    _keep_house(db)


def queue_all(db: Database) -> None:
    """Have every build wait, each with a priority, one of ten with a deadline, and two of three
    for workers of another kind.
    """
    due = "created_at - 21600 * (rung_at + length(id)) / 7"
    other = "CASE WHEN CAST(created_at AS INTEGER) % 3 = 0 THEN 'native' ELSE 'cuda-90' END"
    deadline = "CASE WHEN CAST(created_at AS INTEGER) % 10 = 0 THEN 1.9e9 END"
    values = f"state = 'queued', due_at = {due}, capability = {other}, deadline = {deadline}"
    with db.write() as connection:
        connection.execute(text(f"UPDATE builds SET {values}"))
    _keep_house(db)


def _keep_house(db: Database) -> None:
    kind = db.url.get_backend_name()
    if kind == "postgresql":
        with psycopg.connect(db.url.render_as_string(False), autocommit=True) as housekeeper:
            housekeeper.execute("VACUUM ANALYZE")
    else:
        with db.write() as connection:
            connection.execute(text("ANALYZE"))


def _inserts() -> tuple[str, ...]:
    return (
        "INSERT INTO jobs (id, kind, state, model, request, idempotency_key, fingerprint, "
        f"created_at, finished_at, last_seq) SELECT {_NAME}, 'compile', {_STATE}, "
        f"'sha256:model', '{{}}', {_KEY}, {_NAME}, 1699000000.0 + n, {_ENDED}, 1",
        "INSERT INTO builds (id, job_id, position, target, capability, state, action_key, "
        "created_at, finished_at, lease_until, rung_at, due_at) "
        f"SELECT {_NAME} || '-0', {_NAME}, 0, 'native', 'native', {_STATE}, {_KEY}, "
        f"1699000000.0 + n, {_ENDED}, 1800000000.0, 1699000000.0, 1699003600.0 + n",
        "INSERT INTO events (job_id, seq, time, type, data) "
        f"SELECT {_NAME}, 1, 1699000000.0, 'job.queued', '{{}}'",
    )
