"""The doorbell: a build's id, sent by Celery over Redis, or over a folder without a server."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from service.settings import Settings

TASK = "relaxd.build"
POLL_S = 0.1
ENOUGH = 32
"""Messages that wait in a queue: as many workers will look for builds, of which each takes all it
finds, so that another message would wake nobody.
"""

logger = structlog.get_logger("relaxd.broker")


def queue_of(capability: str) -> str:
    """The queue of builds that ask for a capability; workers listen to those of what they offer."""
    return f"relaxd.{capability}"


def celery_app(settings: Settings) -> Celery:
    """A Celery application that expects nothing of its broker: results, retries and redelivery are
    the database's affair.
    """
    app = Celery("relaxd", set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        **_embedded(settings) if settings.broker_url is None else _server(settings.broker_url),
    )
    return app


def _embedded(settings: Settings) -> dict[str, object]:
    return {
        "broker_transport": "service.adapters.spool_transport:Transport",
        "broker_transport_options": {"folder": str(settings.spool_dir), "polling_interval": POLL_S},
    }


def _server(url: str) -> dict[str, object]:
    # Whoever submits a job must not wait for a broker that is away: the job is safe without it.
    timeouts = {
        "socket_connect_timeout": 2,
        "socket_timeout": 30,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.1,
    }
    return {"broker_url": url, "broker_transport_options": timeouts}


class CeleryDoorbell:
    """Rings by sending a Celery task; a ring that the broker does not take is logged, since
    sweepers ring again.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app

    @cached_property
    def _errors(self) -> tuple[type[Exception], ...]:
        """The errors of the transport's library for an unreachable broker."""
        connection = self._app.connection_for_write()
        return (*connection.connection_errors, *connection.channel_errors)

    def ring(self, build_id: str, capability: str) -> None:
        """See `service.core.Doorbell`."""
        queue = queue_of(capability)
        try:
            with self._app.producer_or_acquire() as producer:
                if _waiting(producer.channel, queue) < ENOUGH:
                    self._app.send_task(
                        TASK, args=[build_id], queue=queue, retry=False, producer=producer
                    )
        except (OperationalError, OSError, *self._errors) as error:
            logger.warning("doorbell failed", build_id=build_id, error=str(error))


def _waiting(channel: Any, queue: str) -> int:
    # kombu's own count asks Redis for a queue of each priority.
    client = getattr(channel, "client", None)
    return int(client.llen(queue) if client else channel._size(queue))


def queues_of(capabilities: Sequence[str]) -> list[str]:
    """Queues that a worker with these capabilities listens to."""
    return [queue_of(capability) for capability in capabilities]
