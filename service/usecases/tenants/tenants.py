"""Tenants: made, listed and changed by the service's operators."""

from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from relaxd.errors import DeclarationError
from service.core import Core
from service.db import records
from service.db.schema import holdings as holdings_table
from service.db.schema import tenants
from service.db.transaction import Transaction
from service.errors import TenantExists, UnknownTenant
from service.identity import LONGEST_TENANT, Limits, Tenant, is_tenant_name
from service.usecases.store import holdings


def find(tx: Transaction, name: str) -> Tenant:
    """The tenant; raises UnknownTenant."""
    row = tx.connection.execute(select(tenants).where(tenants.c.name == name)).one_or_none()
    if row is None:
        raise UnknownTenant(name)
    return records.tenant_from(row)


def get(core: Core, name: str) -> Tenant:
    """The tenant; raises UnknownTenant."""
    with core.reading() as tx:
        return find(tx, name)


def is_known(core: Core, name: str) -> bool:
    """True if there is such a tenant."""
    with core.reading() as tx:
        query = select(tenants.c.name).where(tenants.c.name == name)
        return tx.connection.execute(query).one_or_none() is not None


def list_all(core: Core) -> list[Tenant]:
    """Every tenant by name."""
    with core.reading() as tx:
        rows = tx.connection.execute(select(tenants).order_by(tenants.c.name))
        return [records.tenant_from(row) for row in rows]


def create(core: Core, name: str) -> Tenant:
    """A tenant without limits; raises TenantExists, and DeclarationError for a name that none can
    have.
    """
    if not is_tenant_name(name):
        raise DeclarationError(
            f"no tenant can be called {name[:80]!r}",
            field="name",
            hint=f"use at most {LONGEST_TENANT} lower-case letters, digits and single hyphens "
            "between them; `default` and `relaxd` are taken",
        )
    if len(list_all(core)) == 1:
        holdings.adopt(core)
    try:
        with core.writing() as tx:
            # What a request still uploaded while an earlier tenant of the name was deleted.
            tx.connection.execute(delete(holdings_table).where(holdings_table.c.tenant == name))
            tx.connection.execute(insert(tenants).values(name=name, created_at=tx.now))
            return find(tx, name)
    except IntegrityError:
        raise TenantExists(name) from None


def change(core: Core, name: str, **values: Any) -> Tenant:
    """Set some of `limits`, `weight` and `shares_cache`, and leave the others; raises
    UnknownTenant.
    """
    columns = dict(values)
    if (limits := columns.pop("limits", None)) is not None:
        columns |= _columns(limits)
    with core.writing() as tx:
        find(tx, name)
        if columns:
            tx.connection.execute(update(tenants).where(tenants.c.name == name).values(columns))
        return find(tx, name)


def _columns(limits: Limits) -> dict[str, int | float | None]:
    return {
        "stored_limit": limits.stored_bytes,
        "running_limit": limits.running,
        "queued_limit": limits.queued,
        "request_limit": limits.requests,
    }
