"""Overview: jobs in brief, however many targets they have, and what changes of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select

from relaxd.contract.states import Stage, State
from service.core import Core
from service.db.records import maybe, moment
from service.db.schema import builds, jobs
from service.db.transaction import Transaction
from service.domain import Brief, Kind, Queue
from service.usecases.builds.fleet import live_workers
from service.usecases.builds.scheduling import positions

LIVE = tuple(state for state in State if not state.terminal)
OVERLAP_S = 5.0
"""Changes are looked for that far before the last look: transactions end in another order than they
began.
"""
RUNNING_SHOWN = 4
_AT_A_TIME = 500


@dataclass(frozen=True)
class Search:
    """Which jobs are wanted: of one state, with a text in their name or id, older than a job."""

    limit: int = 100
    state: State | None = None
    text: str | None = None
    before: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """The state at a time: the last event of every job that lives or changed lately."""

    time: float
    seen: Mapping[str, int]


def newest(core: Core, search: Search, tenant: str) -> list[Brief]:
    """See `Jobs.overview`."""
    query = _of(tenant).order_by(jobs.c.created_at.desc(), jobs.c.id).limit(search.limit)
    if search.state:
        query = query.where(jobs.c.state == search.state)
    if search.text:
        named = jobs.c.model_name.icontains(search.text, autoescape=True)
        query = query.where(or_(named, jobs.c.id.startswith(search.text, autoescape=True)))
    with core.reading() as tx:
        if search.before:
            query = query.where(_older(tx, search.before, tenant))
        return _briefs(tx, tx.connection.execute(query).all(), tenant)


def queue(core: Core, tenant: str) -> Queue:
    """See `Jobs.queue`."""
    workers = len(live_workers(core))
    with core.reading() as tx:
        positions_of = positions(tx, tenant)
        running, queued = (
            tx.connection.execute(
                select(func.count()).where(
                    builds.c.tenant == tenant,
                    builds.c.state == state,
                    builds.c.capability != Kind.INSPECT,
                )
            ).scalar_one()
            for state in (State.RUNNING, State.QUEUED)
        )
    return Queue(running, queued, workers, _first_positions(positions_of))


def read_changes(core: Core, tenant: str, last: Snapshot | None) -> tuple[Snapshot, list[Brief]]:
    """A look at the jobs, and those that have changed since the last one; without one, none."""
    with core.reading() as tx:
        recent = (last.time if last else tx.now) - OVERLAP_S
        lately = or_(jobs.c.created_at > recent, jobs.c.finished_at > recent)
        query = _of(tenant).where(or_(jobs.c.state.in_(LIVE), lately))
        rows = tx.connection.execute(query).all()
        fresh = [row for row in rows if last and last.seen.get(row.id) != row.last_seq]
        snapshot = Snapshot(tx.now, {row.id: row.last_seq for row in rows})
        return snapshot, _briefs(tx, fresh, tenant)


def _of(tenant: str) -> Select[Any]:
    columns = (
        jobs.c.id,
        jobs.c.state,
        jobs.c.model_name,
        jobs.c.model,
        jobs.c.created_at,
        jobs.c.finished_at,
        jobs.c.last_seq,
    )
    return select(*columns).where(jobs.c.tenant == tenant, jobs.c.kind == Kind.COMPILE)


def _older(tx: Transaction, job_id: str, tenant: str) -> ColumnElement[bool]:
    created = tx.lock(job_id, tenant).created_at
    same = and_(jobs.c.created_at == created, jobs.c.id > job_id)
    return or_(jobs.c.created_at < created, same)


def _briefs(tx: Transaction, rows: Sequence[Row[Any]], tenant: str) -> list[Brief]:
    ids = [row.id for row in rows]
    counts, cached = _counts(tx, ids)
    running = _running(tx, ids)
    queued = any(State.QUEUED in count for count in counts.values())
    positions_of = _first_positions(positions(tx, tenant)) if queued else {}
    return [
        Brief(
            id=row.id,
            state=State(row.state),
            name=row.model_name,
            model=row.model,
            created_at=moment(row.created_at),
            finished_at=maybe(row.finished_at),
            builds=counts[row.id],
            cached=cached[row.id],
            running=tuple(running[row.id][:RUNNING_SHOWN]),
            position=positions_of.get(row.id),
        )
        for row in rows
    ]


def _counts(
    tx: Transaction, ids: Sequence[str]
) -> tuple[dict[str, dict[State, int]], dict[str, int]]:
    """How many builds of each job are in each state, and how many were answered from the cache."""
    counts: dict[str, dict[State, int]] = defaultdict(dict)
    cached: dict[str, int] = defaultdict(int)
    for part in _parts(ids):
        query = (
            select(builds.c.job_id, builds.c.state, builds.c.cached, func.count().label("builds"))
            .where(builds.c.job_id.in_(part))
            .group_by(builds.c.job_id, builds.c.state, builds.c.cached)
        )
        for row in tx.connection.execute(query):
            build_counts, state = counts[row.job_id], State(row.state)
            build_counts[state] = build_counts.get(state, 0) + row.builds
            cached[row.job_id] += row.builds if row.cached else 0
    return counts, cached


def _running(tx: Transaction, ids: Sequence[str]) -> dict[str, list[tuple[str, Stage | None]]]:
    """The targets that are built now, with their stages, by job."""
    running: dict[str, list[tuple[str, Stage | None]]] = defaultdict(list)
    for part in _parts(ids):
        query = (
            select(builds.c.job_id, builds.c.target, builds.c.stage)
            .where(builds.c.job_id.in_(part), builds.c.state == State.RUNNING)
            .order_by(builds.c.job_id, builds.c.position)
        )
        for row in tx.connection.execute(query):
            running[row.job_id].append((row.target, Stage(row.stage) if row.stage else None))
    return running


def _parts(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _AT_A_TIME] for start in range(0, len(ids), _AT_A_TIME)]


def _first_positions(positions: Mapping[str, int]) -> dict[str, int]:
    """The least place of each job's builds, whose ids begin with the job's."""
    first: dict[str, int] = {}
    for build_id, position in positions.items():
        job_id = build_id.rpartition("-")[0]
        first[job_id] = min(position, first.get(job_id, position))
    return first
