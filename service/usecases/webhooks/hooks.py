"""Webhooks of a tenant: made, listed and removed, and the deliveries of each."""

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select

from service.core import Core
from service.db import outbox, records
from service.db.schema import deliveries, webhooks
from service.db.transaction import Transaction
from service.domain import Delivery, HookEvent, Webhook
from service.errors import TooManyWebhooks, UnknownWebhook

MOST_WEBHOOKS = 10
"""Of a tenant."""
SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32
_KEPT_DAYS, _DAY_S = 7, 86400.0
_BATCH = 1000
TABLES = (deliveries, webhooks)


@dataclass(frozen=True)
class NewWebhook:
    """A webhook, and its secret, which is shown this once."""

    webhook: Webhook
    secret: str


def create(
    core: Core, tenant: str, url: str, events: Sequence[HookEvent], creator: str
) -> NewWebhook:
    """A webhook of the tenant with a secret of its own; raises TooManyWebhooks."""
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    with core.writing() as tx:
        counted = select(func.count()).select_from(webhooks).where(webhooks.c.tenant == tenant)
        if tx.connection.execute(counted).scalar_one() >= MOST_WEBHOOKS:
            raise TooManyWebhooks(MOST_WEBHOOKS)
        row = {
            "id": secrets.token_hex(8),
            "tenant": tenant,
            "url": url,
            "secret": secret,
            "events": sorted(set(events)),
            "created_at": tx.now,
            "created_by": creator,
        }
        tx.connection.execute(insert(webhooks).values(row))
        return NewWebhook(_find(tx, tenant, str(row["id"])), secret)


def list_all(core: Core, tenant: str) -> list[Webhook]:
    """The tenant's webhooks, the oldest first."""
    query = select(webhooks).where(webhooks.c.tenant == tenant).order_by(webhooks.c.created_at)
    with core.reading() as tx:
        return [records.webhook_from(row) for row in tx.connection.execute(query)]


def remove(core: Core, tenant: str, webhook: str) -> None:
    """Remove a webhook with its deliveries; raises UnknownWebhook."""
    with core.writing() as tx:
        _find(tx, tenant, webhook)
        tx.connection.execute(delete(deliveries).where(deliveries.c.webhook_id == webhook))
        tx.connection.execute(delete(webhooks).where(webhooks.c.id == webhook))


def ping(core: Core, tenant: str, webhook: str) -> None:
    """Have the webhook told of nothing, to see that it works; raises UnknownWebhook."""
    with core.writing() as tx:
        _find(tx, tenant, webhook)
        data = {"webhook": webhook}
        outbox.post_to(tx.connection, tx.now, tenant, webhook, HookEvent.PING, data)


def list_deliveries(core: Core, tenant: str, webhook: str, limit: int = 100) -> list[Delivery]:
    """Deliveries of the last days, the newest first; raises UnknownWebhook."""
    query = select(deliveries).where(deliveries.c.webhook_id == webhook)
    query = query.order_by(deliveries.c.created_at.desc()).limit(limit)
    with core.reading() as tx:
        _find(tx, tenant, webhook)
        return [records.delivery_from(row) for row in tx.connection.execute(query)]


def expire(core: Core) -> None:
    """Remove the deliveries of earlier days that do not wait any more, in short transactions."""
    while True:
        with core.writing() as tx:
            old = (deliveries.c.created_at < tx.now - _KEPT_DAYS * _DAY_S) & (
                deliveries.c.next_at.is_(None)
            )
            batch = select(deliveries.c.id).where(old).limit(_BATCH)
            gone = delete(deliveries).where(deliveries.c.id.in_(batch.scalar_subquery()))
            if tx.connection.execute(gone).rowcount < _BATCH:
                return


def _find(tx: Transaction, tenant: str, webhook: str) -> Webhook:
    mine = (webhooks.c.tenant == tenant) & (webhooks.c.id == webhook)
    row = tx.connection.execute(select(webhooks).where(mine)).one_or_none()
    if row is None:
        raise UnknownWebhook(webhook)
    return records.webhook_from(row)
