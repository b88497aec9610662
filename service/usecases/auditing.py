"""The audit log: who changed what, and how it ended; never what they signed in with."""

from sqlalchemy import delete, insert, select

from service.core import Core
from service.db import records
from service.db.schema import audit
from service.identity import Entry

BATCH = 1000
"""Entries removed in one transaction."""


def record(
    core: Core,
    *,
    tenant: str,
    principal: str,
    action: str,
    subject: str,
    outcome: str,
    request_id: str | None = None,
    detail: dict[str, object] | None = None,
) -> None:
    """Write an entry; raises DatabaseUnavailable."""
    with core.writing() as tx:
        values = {
            "time": tx.now,
            "tenant": tenant,
            "principal": principal,
            "action": action,
            "subject": subject,
            "outcome": outcome,
            "request_id": request_id,
            "detail": detail or {},
        }
        tx.connection.execute(insert(audit).values(values))


def listed(core: Core, tenant: str | None, limit: int, before: int | None = None) -> list[Entry]:
    """Entries, the newest first, of one tenant or of all; `before` is the id of the last entry of
    the page before.
    """
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if tenant is not None:
        query = query.where(audit.c.tenant == tenant)
    if before is not None:
        query = query.where(audit.c.id < before)
    with core.reading() as tx:
        return [records.entry_from(row) for row in tx.connection.execute(query)]


def expire(core: Core) -> None:
    """Remove the entries whose time is up, in short transactions."""
    days = core.settings.audit_days
    while days:
        with core.writing() as tx:
            old = select(audit.c.id).where(audit.c.time < tx.now - days * 86400).limit(BATCH)
            removed = tx.connection.execute(delete(audit).where(audit.c.id.in_(old))).rowcount
        if removed < BATCH:
            return
