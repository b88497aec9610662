"""Deleting a tenant: its tokens, jobs, names and rights go at once, its blobs with the garbage."""

from collections.abc import Sequence

from sqlalchemy import Select, delete, func, insert, select, update

from artifacts.oci import JOB_TAG
from relaxd.contract.states import State
from service.core import Core
from service.db.schema import (
    TENANTS_DELETED,
    builds,
    counters,
    events,
    holdings,
    jobs,
    pins,
    reservations,
    tokens,
    usage,
)
from service.db.schema import tenants as rows
from service.db.transaction import Transaction
from service.domain import Kind
from service.errors import TenantBusy, TenantKept
from service.identity import DEFAULT, Deletion, namespace
from service.usecases.jobs import cancelling
from service.usecases.registry import models
from service.usecases.store.naming import JobTags
from service.usecases.tenants import tenants
from service.usecases.webhooks import hooks

_JOBS, _HOLDINGS = 20, 1000
"""Rows removed in one transaction, which others wait for."""
_UNFINISHED = [state for state in State if not state.terminal]


def delete_tenant(core: Core, name: str) -> Deletion:
    """Remove the tenant and what is its own; may be repeated after any error. Raises UnknownTenant,
    TenantKept for `default`, TenantBusy while builds of the tenant still run, which were cancelled.
    """
    if name == DEFAULT:
        raise TenantKept(name)
    ended = _close(core, name)
    for job_id in _ids(core, _of(name).where(jobs.c.state.in_(_UNFINISHED))):
        cancelling.cancel(core, job_id)
    if running := _running(core, name):
        raise TenantBusy(name, running)
    removed, tags = 0, JobTags(core, name).count()
    while batch := _ids(core, _of(name).limit(_JOBS)):
        _forget_results(core, batch)
        _remove_jobs(core, batch)
        removed += len(batch)
    tags += _untag(core, namespace(name))
    _remove_rights(core, name)
    return Deletion(name, jobs=removed, tokens=ended, tags=tags)


def _close(core: Core, name: str) -> int:
    """Let nobody in any more, and take nothing from those who are; how many tokens there were."""
    with core.writing() as tx:
        tenants.find(tx, name)
        ended = tx.connection.execute(delete(tokens).where(tokens.c.tenant == name)).rowcount
        closed = {"stored_limit": 0, "queued_limit": 0, "running_limit": 0}
        tx.connection.execute(update(rows).where(rows.c.name == name).values(closed))
    return ended


def _of(name: str) -> Select[str]:
    return select(jobs.c.id).where(jobs.c.tenant == name)


def _ids(core: Core, query: Select[str]) -> Sequence[str]:
    with core.reading() as tx:
        return tx.connection.scalars(query).all()


def _running(core: Core, name: str) -> int:
    with core.reading() as tx:
        mine = (builds.c.tenant == name) & (builds.c.state == State.RUNNING)
        return tx.connection.execute(select(func.count()).where(mine)).scalar_one()


def _forget_results(core: Core, job_ids: Sequence[str]) -> None:
    """Remove the action records of the tenant's own results: a later tenant of its name would find
    them.
    """
    with core.reading() as tx:
        own = select(jobs.c.id, builds.c.action_key, jobs.c.kind).join(builds)
        lost = tx.connection.execute(own.where(jobs.c.id.in_(job_ids))).all()
        keys = {row.action_key for row in lost if row.action_key and row.kind == Kind.COMPILE}
        shared = select(builds.c.action_key).where(
            builds.c.action_key.in_(keys), builds.c.job_id.not_in(job_ids)
        )
        others = set(tx.connection.scalars(shared))
    for key in keys - others:
        core.store.actions.drop(key)


def _remove_jobs(core: Core, job_ids: Sequence[str]) -> None:
    with core.writing() as tx:
        for table in (events, builds):
            tx.connection.execute(delete(table).where(table.c.job_id.in_(job_ids)))
        tx.connection.execute(delete(jobs).where(jobs.c.id.in_(job_ids)))


def _untag(core: Core, space: str) -> int:
    """Remove every name in the tenant's repositories from the store; how many tags, but for those
    of jobs that an earlier release wrote.
    """
    references, count = core.store.references, 0
    for repository, tag in list(references.all_tags(space)):
        if digest := references.resolve(repository, tag):
            untagged = references.untag(repository, tag, digest)
            count += untagged and not tag.startswith(JOB_TAG)
    for repository, subject, digest, _ in list(references.all_referrers(space)):
        references.forget(repository, subject, digest)
    return count


def _remove_rights(core: Core, name: str) -> None:
    mine = holdings.c.tenant == name
    while True:
        with core.writing() as tx:
            batch = select(holdings.c.digest).where(mine).limit(_HOLDINGS)
            gone = delete(holdings).where(mine, holdings.c.digest.in_(batch.scalar_subquery()))
            if tx.connection.execute(gone).rowcount == _HOLDINGS:
                continue
            if late := tx.connection.execute(_of(name).limit(1)).one_or_none():
                raise TenantBusy(name, len(late))
            for table in (pins, reservations, usage, *models.TABLES, *hooks.TABLES):
                tx.connection.execute(delete(table).where(table.c.tenant == name))
            tx.connection.execute(delete(tokens).where(tokens.c.tenant == name))
            tx.connection.execute(delete(rows).where(rows.c.name == name))
            _note(tx)
            return


def _note(tx: Transaction) -> None:
    """That there was another tenant once: what it had does not become everybody's."""
    marked = counters.c.name == TENANTS_DELETED
    more = update(counters).where(marked).values(value=counters.c.value + 1)
    if not tx.connection.execute(more).rowcount:
        tx.connection.execute(insert(counters).values(name=TENANTS_DELETED, value=1))
