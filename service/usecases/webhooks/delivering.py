"""Delivers events to webhooks: signed as Standard Webhooks says, and repeated with growing pauses.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from sqlalchemy import select, update

from service.core import Core
from service.db.records import moment
from service.db.schema import deliveries, webhooks
from service.usecases.webhooks.hooks import SECRET_PREFIX

PAUSES_S = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 72000.0)
"""Before each further attempt; after the last, a delivery has failed."""
LEASE_S = 120.0
"""How long an attempt has before another worker makes the next; more than the sender waits."""
_BATCH = 20

Send = Callable[[str, bytes, Mapping[str, str]], str | None]
"""Posts a body with headers to a URL; why that failed, or None. Never raises for a receiver."""

logger = structlog.get_logger("relaxd.webhooks")


@dataclass(frozen=True)
class _Due:
    """A delivery that this process is to make now, and what it takes."""

    id: str
    url: str
    secret: str
    body: bytes
    attempts: int


def deliver_due(core: Core, send: Send) -> int:
    """Make the attempts whose time has come; how many."""
    due = _due(core)
    for delivery in due:
        headers = sign(delivery.secret, delivery.id, int(core.clock()), delivery.body)
        _record(core, delivery, send(delivery.url, delivery.body, headers))
    return len(due)


def sign(secret: str, message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a message: its id, the time of the attempt, and an HMAC over both and the
    body.
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    content = f"{message}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "Content-Type": "application/json",
        "User-Agent": "relaxd-webhooks/1",
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


def _due(core: Core) -> list[_Due]:
    """Claim some deliveries: whoever sets an attempt's lease first makes it."""
    waiting = deliveries.join(webhooks, deliveries.c.webhook_id == webhooks.c.id)
    query = (
        select(deliveries, webhooks.c.url, webhooks.c.secret)
        .select_from(waiting)
        .order_by(deliveries.c.next_at)
        .limit(_BATCH)
    )
    with core.reading() as tx:
        rows = tx.connection.execute(query.where(deliveries.c.next_at <= tx.now)).all()
    claimed = []
    for row in rows:
        same = (deliveries.c.id == row.id) & (deliveries.c.attempts == row.attempts)
        with core.writing() as tx:
            values = {"attempts": row.attempts + 1, "next_at": tx.now + LEASE_S}
            taken = update(deliveries).where(same, deliveries.c.next_at <= tx.now)
            if not tx.connection.execute(taken.values(values)).rowcount:
                continue
        document = {
            "type": row.event,
            "timestamp": moment(row.created_at).isoformat(),
            "data": row.data,
        }
        body = json.dumps(document, separators=(",", ":")).encode()
        claimed.append(_Due(row.id, row.url, row.secret, body, row.attempts + 1))
    return claimed


def _record(core: Core, delivery: _Due, error: str | None) -> None:
    pauses = dict(enumerate(PAUSES_S, 1))
    mine = (deliveries.c.id == delivery.id) & (deliveries.c.attempts == delivery.attempts)
    with core.writing() as tx:
        pause = pauses.get(delivery.attempts)
        values = {
            "error": error,
            "delivered_at": tx.now if error is None else None,
            "next_at": None if error is None or pause is None else tx.now + pause,
        }
        tx.connection.execute(update(deliveries).where(mine).values(values))
    if error is not None:
        log = logger.warning if pause is None else logger.info
        log("a delivery failed", delivery=delivery.id, attempt=delivery.attempts, error=error)
