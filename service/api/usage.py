"""The endpoint of usage: what a tenant's builds took, for bills and for finding out why."""

from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from service.api.context import UsePrincipal, UseServices
from service.api.tenancy import OfTenant, choose_tenant
from service.api.tenant_threads import TenantRoute
from service.domain import UsageRow
from service.usecases.tenants import usage
from service.usecases.tenants.usage import Part

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["access"])

_DAYS = 30
_ALL = (Part.TENANT, Part.PROJECT, Part.TARGET, Part.STAGE)


class UsageRowOut(BaseModel):
    """Sums over builds; what the report is not broken down by is null. `attempts` of a stage count
    builds that were tried again twice; `stored_bytes` are those of new bundles.
    """

    tenant: str | None
    project: str | None
    target: str | None
    stage: str | None
    day: date | None
    attempts: int
    seconds: float
    cpu_seconds: float
    memory_byte_seconds: float
    stored_bytes: int

    @classmethod
    def of(cls, row: UsageRow) -> "UsageRowOut":
        """From the domain."""
        return cls(**asdict(row))


class UsageOut(BaseModel):
    """Usage from the start of the day `since` on, in UTC; stores_bytes: what each tenant has stored
    now.
    """

    since: date
    rows: list[UsageRowOut]
    stores_bytes: dict[str, int]


@router.get("/usage", summary="Report usage")
def read_usage(
    services: UseServices,
    principal: UsePrincipal,
    tenant: OfTenant = None,
    since: Annotated[
        date | None, Query(description="A day, as in 2026-01-31; by default 30 days ago.")
    ] = None,
    by: Annotated[
        list[Part] | None,
        Query(description="Repeatable; by default all but `day`.", max_length=len(Part)),
    ] = None,
) -> UsageOut:
    """The tenant's; for operators that of all tenants, or of one."""
    core = services.core
    everyones = principal.operates and tenant is None
    of = None if everyones else choose_tenant(principal, tenant)
    today = datetime.fromtimestamp(core.clock(), UTC).date()
    first = since or today - timedelta(days=_DAYS)
    rows = usage.list_usage(core, of, first, by or _ALL)
    return UsageOut(
        since=first,
        rows=[UsageRowOut.of(row) for row in rows],
        stores_bytes=usage.stored_bytes(core, of),
    )
