"""Usage of the machines by builds: added up by day as they end, and reported."""

from collections.abc import Sequence
from datetime import date
from enum import StrEnum

from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite

from compiler.isolation.usage import StageUsage
from relaxd.contract.states import Stage
from service.core import Core
from service.db.schema import tenants, usage
from service.domain import Claim, UsageRow

DAY_S = 86400
_EPOCH = date(1970, 1, 1).toordinal()
MOST_ROWS = 10_000
_LONGEST_TARGET = 200
_AMOUNTS = ("attempts", "seconds", "cpu_seconds", "memory_byte_seconds", "stored_bytes")


class Part(StrEnum):
    """A part that a report is broken down by."""

    TENANT = "tenant"
    PROJECT = "project"
    TARGET = "target"
    STAGE = "stage"
    DAY = "day"


def record(core: Core, claim: Claim, stages: Sequence[StageUsage], stored_bytes: int) -> None:
    """Add an attempt at a build: what each stage used, and the bytes of a bundle that was new."""
    used = {each.stage: each for each in stages}
    if stored_bytes:
        used.setdefault(Stage.PUBLISH, StageUsage(Stage.PUBLISH))
    if not used:
        return
    with core.writing() as tx:
        of = {
            "day": int(tx.now // DAY_S),
            "tenant": claim.tenant,
            "project": claim.project,
            "target": claim.target[:_LONGEST_TARGET],
        }
        # In one order: no two attempts wait for each other's rows.
        rows = [
            {
                **of,
                "stage": stage.value,
                "attempts": 1,
                "seconds": used[stage].seconds,
                "cpu_seconds": used[stage].cpu_seconds,
                "memory_byte_seconds": used[stage].memory_byte_seconds,
                "stored_bytes": stored_bytes if stage is Stage.PUBLISH else 0,
            }
            for stage in sorted(used)
        ]
        is_postgresql = tx.connection.dialect.name == "postgresql"
        insert = (postgresql.insert if is_postgresql else sqlite.insert)(usage).values(rows)
        totals = {name: usage.c[name] + insert.excluded[name] for name in _AMOUNTS}
        keys = list(usage.primary_key.columns)
        tx.connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=totals))


def list_usage(
    core: Core, tenant: str | None, since: date, parts: Sequence[Part]
) -> list[UsageRow]:
    """Sums from the start of that day (UTC) on, of one tenant or of all, by `parts`; those that
    used the most processor time first, MOST_ROWS at most.
    """
    by = [usage.c[part.value] for part in dict.fromkeys(parts)]
    totals = [func.sum(usage.c[name]).label(name) for name in _AMOUNTS]
    query = select(*by, *totals).where(usage.c.day >= since.toordinal() - _EPOCH)
    if tenant is not None:
        query = query.where(usage.c.tenant == tenant)
    query = query.group_by(*by) if by else query.having(func.count() > 0)
    query = query.order_by(func.sum(usage.c.cpu_seconds).desc(), *by).limit(MOST_ROWS)
    with core.reading() as tx:
        rows = [row._mapping for row in tx.connection.execute(query)]
    return [
        UsageRow(
            tenant=row.get("tenant"),
            project=row.get("project"),
            target=row.get("target"),
            stage=row.get("stage"),
            day=date.fromordinal(row["day"] + _EPOCH) if "day" in row else None,
            attempts=int(row["attempts"]),
            seconds=row["seconds"],
            cpu_seconds=row["cpu_seconds"],
            memory_byte_seconds=row["memory_byte_seconds"],
            stored_bytes=int(row["stored_bytes"]),
        )
        for row in rows
    ]


def stored_bytes(core: Core, tenant: str | None) -> dict[str, int]:
    """The bytes that each tenant has stored now, of one or of all."""
    query = select(tenants.c.name, tenants.c.stored_bytes).order_by(tenants.c.name)
    if tenant is not None:
        query = query.where(tenants.c.name == tenant)
    with core.reading() as tx:
        return {row.name: row.stored_bytes for row in tx.connection.execute(query)}
