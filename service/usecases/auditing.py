"""The audit log: who changed what, and how it ended; never what they signed in with."""

from dataclasses import dataclass, field

from sqlalchemy import delete, insert, select

from service.core import Core
from service.db import records
from service.db.schema import audit
from service.identity import Entry

BATCH = 1000
"""Entries removed in one transaction."""

ENTRY = insert(audit)


@dataclass
class Change:
    """Who changes something, by which request; `written` once the change and its entry are
    committed together, so that nobody has to write another.
    """

    principal: str
    action: str
    request_id: str | None = None
    detail: dict[str, object] = field(default_factory=dict)
    written: bool = False


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
    change = Change(principal, action, request_id, detail or {})
    with core.writing() as tx:
        values = entry_of(change, tx.now, tenant=tenant, subject=subject, outcome=outcome)
        tx.connection.execute(ENTRY, values)


def entry_of(
    change: Change, time: float, *, tenant: str, subject: str, outcome: str = "done"
) -> dict[str, object]:
    """The row of an entry, also for who writes it with the change itself."""
    return {
        "time": time,
        "tenant": tenant,
        "principal": change.principal,
        "action": change.action,
        "subject": subject,
        "outcome": outcome,
        "request_id": change.request_id,
        "detail": change.detail,
    }


def list_entries(
    core: Core, tenant: str | None, limit: int, before: int | None = None
) -> list[Entry]:
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
