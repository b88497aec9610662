"""Whether a tenant may submit more: its room in the store and in the queue."""

from sqlalchemy import func, select

from relaxd.contract.states import State
from service.core import Core
from service.db.schema import builds, tenants
from service.errors import QueueFull, QuotaExceeded, UnknownTenant


def admit(core: Core, tenant: str, count: int) -> None:
    """Raise QuotaExceeded where the tenant stores as much as it may, or QueueFull where `count`
    builds more would be more than it may have queued, or UnknownTenant where it was deleted.
    """
    with core.reading() as tx:
        row = tx.connection.execute(select(tenants).where(tenants.c.name == tenant)).one_or_none()
        if row is None:
            raise UnknownTenant(tenant)
        if row.stored_limit is not None and row.stored_bytes >= row.stored_limit:
            raise QuotaExceeded(tenant)
        if row.queued_limit is None:
            return
        mine = (builds.c.tenant == tenant) & (builds.c.state == State.QUEUED)
        some = select(builds.c.id).where(mine).limit(row.queued_limit + 1).subquery()
        queued = tx.connection.execute(select(func.count()).select_from(some)).scalar_one()
    if queued + count > row.queued_limit:
        raise QueueFull(tenant, row.queued_limit)
