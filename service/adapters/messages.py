"""Messages of the doorbell as they are sent, read strictly: whoever reaches the broker can put
anything into a queue, and what Celery or kombu trips over would end the worker.
"""

import base64
import json
from queue import SimpleQueue
from typing import Any

import structlog

TASK = "relaxd.build"
LONGEST = 200
"""Of the id of a build, of a task or of a delivery."""

logger = structlog.get_logger("relaxd.broker")

_dropped: "SimpleQueue[None]" = SimpleQueue()


def read_ring(message: Any, queue: str) -> dict[str, Any] | None:
    """The message made anew from the three texts that it is read for, so that nothing else in it
    has a meaning; None where it is no ring of a doorbell.
    """
    try:
        headers, properties = message["headers"], message["properties"]
        (build_id,), named, _ = json.loads(base64.b64decode(message["body"], validate=True))
        texts = (build_id, headers["id"], properties["delivery_tag"])
        sent = (headers["task"], properties["body_encoding"], named)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if sent != (TASK, "base64", {}) or not all(_is_short(text) for text in texts):
        return None
    return _ring(*texts, queue)


def _is_short(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= LONGEST


def _ring(build_id: str, task_id: str, tag: str, queue: str) -> dict[str, Any]:
    body = json.dumps([[build_id], {}, {}]).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": TASK, "id": task_id, "root_id": task_id},
        "properties": {
            "correlation_id": task_id,
            "delivery_tag": tag,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "body_encoding": "base64",
            "priority": 0,
        },
    }


def drop(why: str) -> None:
    """Count a message that is no ring, and is gone: whoever sweeps rings again for what waits."""
    _dropped.put(None)
    logger.warning("a message of the broker was dropped", why=why[:LONGEST])


def take_dropped() -> int:
    """How many messages this process has dropped since it was last asked."""
    count = 0
    while not _dropped.empty():
        _dropped.get()
        count += 1
    return count
