"""The outbox: events for webhooks, written in the transaction of what they tell of."""

import secrets
from typing import Any

from sqlalchemy import Connection, func, insert, select

from service.db.schema import deliveries, webhooks
from service.domain import HookEvent

MOST_WAITING = 10_000
"""Deliveries of a webhook that wait: of more events, none is told to it."""


def listeners(connection: Connection, tenant: str, event: HookEvent) -> list[str]:
    """The webhooks of the tenant that ask for the event."""
    query = select(webhooks.c.id, webhooks.c.events).where(webhooks.c.tenant == tenant)
    return [row.id for row in connection.execute(query).all() if event in row.events]


def post(
    connection: Connection, now: float, tenant: str, event: HookEvent, data: dict[str, Any]
) -> None:
    """Have each webhook of the tenant that asks for the event told of it."""
    for webhook in listeners(connection, tenant, event):
        post_to(connection, now, tenant, webhook, event, data)


def post_to(
    connection: Connection,
    now: float,
    tenant: str,
    webhook: str,
    event: HookEvent,
    data: dict[str, Any],
) -> None:
    """Have one webhook told."""
    waiting = (deliveries.c.webhook_id == webhook) & deliveries.c.next_at.is_not(None)
    if connection.execute(select(func.count()).where(waiting)).scalar_one() >= MOST_WAITING:
        return
    row = {
        "id": f"msg_{secrets.token_hex(16)}",
        "webhook_id": webhook,
        "tenant": tenant,
        "event": event,
        "data": data,
        "created_at": now,
        "attempts": 0,
        "next_at": now,
    }
    connection.execute(insert(deliveries).values(row))
