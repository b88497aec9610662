"""The courier: a thread beside a worker's builds that delivers events to webhooks."""

import threading
from functools import partial

import structlog

from service.adapters import webhook_sender
from service.core import Core
from service.errors import DatabaseUnavailable
from service.usecases.webhooks.delivering import deliver_due

LOOK_S = 2.0

logger = structlog.get_logger("relaxd.webhooks")


def deliver_until(shutdown: threading.Event, core: Core) -> None:
    """Look now and then for deliveries that are due; survives a database that is away."""
    send = partial(webhook_sender.post, private=core.settings.webhook_private)
    while not shutdown.wait(LOOK_S):
        try:
            while deliver_due(core, send) and not shutdown.is_set():
                pass
        except DatabaseUnavailable as error:
            logger.warning("deliveries wait", error=str(error))
