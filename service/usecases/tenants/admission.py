"""Admission: a tenant's room in the store and in the queue."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, func, select

from relaxd.contract.states import State
from service.core import Core
from service.db import recovery
from service.db.schema import builds, tenants
from service.errors import QueueFull, QuotaExceeded, UnknownTenant
from service.usecases.store import holdings, reserving

_STATUS = select(
    tenants.c.stored_bytes,
    tenants.c.stored_limit,
    tenants.c.queued_limit,
    tenants.c.shares_cache,
    holdings.MAY_READ.label("may_read"),
).where(tenants.c.name == bindparam("tenant"))
_QUEUED = select(func.count()).select_from(
    select(builds.c.id)
    .where(builds.c.tenant == bindparam("tenant"), builds.c.state == State.QUEUED)
    .limit(bindparam("most"))
    .subquery()
)
BUILD_BYTES = 2048
"""What a build takes in the database beside its request: rows of its own, of its job, of events."""


@dataclass(frozen=True)
class AdmissionStatus:
    """The limits of a tenant, and whether it may read a model; `row` is None for one that was
    deleted.
    """

    tenant: str
    row: Row[Any] | None
    may_read: bool


def admission_status(core: Core, tenant: str, model: str) -> AdmissionStatus:
    """How the tenant stands, and whether it may read the model."""
    with core.reading() as tx:
        arguments = {"tenant": tenant, "digest": model}
        row = tx.connection.execute(_STATUS, arguments).one_or_none()
    return AdmissionStatus(
        tenant, row, bool(row.may_read) if row else holdings.holds(core, tenant, model)
    )


def admit(core: Core, status: AdmissionStatus, count: int, size: int) -> None:
    """Raise QuotaExceeded where the tenant stores as much as it may, or has no room for a request
    of that size, QueueFull where `count` builds more would be more than it may have queued,
    UnknownTenant where it was deleted, or StoreFull where the database's disk has no room for jobs.
    """
    recovery.require_room(core.settings)
    tenant, row = status.tenant, status.row
    if row is None:
        raise UnknownTenant(tenant)
    if row.stored_limit is not None and row.stored_bytes >= row.stored_limit:
        raise QuotaExceeded(tenant)
    if row.queued_limit is not None:
        with core.reading() as tx:
            arguments = {"tenant": tenant, "most": row.queued_limit + 1}
            queued = tx.connection.execute(_QUEUED, arguments).scalar_one()
        if queued + count > row.queued_limit:
            raise QueueFull(tenant, row.queued_limit)
    if row.stored_limit is not None:
        reserving.charge_job(core, tenant, size + count * BUILD_BYTES)
