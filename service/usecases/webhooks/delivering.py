"""Delivers events to webhooks: signed as Standard Webhooks says, and repeated with growing pauses.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Row, func, select, update

from service.core import Core
from service.db.records import moment
from service.db.schema import deliveries, webhooks
from service.usecases.webhooks.hooks import SECRET_PREFIX

PAUSES_S = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 72000.0)
"""Before each further attempt; after the last, a delivery has failed."""
LEASE_S = 120.0
"""How long an attempt has before another worker makes the next; more than the sender waits."""
_AT_A_TIME, _OF_ONE_TENANT = 8, 2
"""Attempts at a time: receivers that answer slowly hold up few, and those of one tenant none of
another's.
"""

Send = Callable[[str, bytes, Mapping[str, str]], str | None]
"""Posts a body with headers to a URL; why that failed, or None. Never raises for a receiver."""

logger = structlog.get_logger("relaxd.webhooks")


def deliver_due(core: Core, send: Send) -> int:
    """Make some of the attempts whose time has come; how many."""
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return sum(threads.map(partial(_attempt, core, send), _due(core)))


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


def _due(core: Core) -> Sequence[Row[Any]]:
    """Deliveries whose time has come, the longest overdue first, few of each tenant."""
    position = func.row_number().over(
        partition_by=deliveries.c.tenant, order_by=deliveries.c.next_at
    )
    with core.reading() as tx:
        due = deliveries.c.next_at <= tx.now
        positions = select(deliveries.c.id, position.label("position")).where(due).subquery()
        query = (
            select(deliveries, webhooks.c.url, webhooks.c.secret)
            .join(positions, deliveries.c.id == positions.c.id)
            .join(webhooks, deliveries.c.webhook_id == webhooks.c.id)
            .where(positions.c.position <= _OF_ONE_TENANT)
            .order_by(deliveries.c.next_at)
            .limit(_AT_A_TIME)
        )
        return tx.connection.execute(query).all()


def _attempt(core: Core, send: Send, row: Row[Any]) -> bool:
    """Make an attempt; False where another process makes it: whoever sets its lease first does."""
    attempt = row.attempts + 1
    with core.writing() as tx:
        same = (deliveries.c.id == row.id) & (deliveries.c.attempts == row.attempts)
        lease = {"attempts": attempt, "next_at": tx.now + LEASE_S}
        claim = update(deliveries).where(same, deliveries.c.next_at <= tx.now)
        if not tx.connection.execute(claim.values(lease)).rowcount:
            return False
    document = {
        "type": row.event,
        "timestamp": moment(row.created_at).isoformat(),
        "data": row.data,
    }
    body = json.dumps(document, separators=(",", ":")).encode()
    headers = sign(row.secret, row.id, int(core.clock()), body)
    _record(core, row.id, attempt, send(row.url, body, headers))
    return True


def _record(core: Core, delivery: str, attempt: int, error: str | None) -> None:
    pause = dict(enumerate(PAUSES_S, 1)).get(attempt)
    mine = (deliveries.c.id == delivery) & (deliveries.c.attempts == attempt)
    with core.writing() as tx:
        values = {
            "error": error,
            "delivered_at": tx.now if error is None else None,
            "next_at": None if error is None or pause is None else tx.now + pause,
        }
        tx.connection.execute(update(deliveries).where(mine).values(values))
    if error is not None:
        log = logger.warning if pause is None else logger.info
        log("a delivery failed", delivery=delivery, attempt=attempt, error=error)
