"""The doorbell: a build's id, sent by Celery over Redis, or over a folder without a server."""

import threading
from collections.abc import Sequence
from functools import cached_property
from queue import Full, Queue
from typing import Any

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from service.adapters.messages import TASK
from service.servers import read_sentinels
from service.settings import Settings

POLL_S = 0.1
MOST_WAITING = 256
"""Rings that wait for the thread that sends them."""
RING_S = 1.0
"""How long a ring may wait for a broker that hangs."""
LISTEN_S = 30.0
REDIS = "service.adapters.redis_transport:Transport"
SENTINEL = "service.adapters.redis_transport:SentinelTransport"
ENOUGH = 32
"""Messages that wait in a queue: as many workers will look for builds, of which each takes all it
finds, so that another message would wake nobody.
"""

logger = structlog.get_logger("relaxd.broker")


def queue_of(capability: str) -> str:
    """The queue of builds that ask for a capability; workers listen to those of what they offer."""
    return f"relaxd.{capability}"


def celery_app(settings: Settings, *, patience_s: float = LISTEN_S) -> Celery:
    """A Celery application that expects nothing of its broker: results, retries and redelivery are
    the database's affair. A broker that is silent for `patience_s` counts as away.
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
        **_embedded(settings)
        if settings.broker_url is None
        else _server(settings.broker_url, patience_s),
    )
    return app


def _embedded(settings: Settings) -> dict[str, object]:
    return {
        "broker_transport": "service.adapters.spool_transport:Transport",
        "broker_transport_options": {"folder": str(settings.spool_dir), "polling_interval": POLL_S},
    }


def _server(url: str, patience_s: float) -> dict[str, object]:
    timeouts = {
        "socket_connect_timeout": min(2.0, patience_s),
        "socket_timeout": patience_s,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.1,
    }
    if (sentinels := read_sentinels(url)) is None:
        return {"broker_url": url, "broker_transport_options": timeouts, "broker_transport": REDIS}
    return {
        "broker_url": sentinels.url,
        "broker_transport_options": {**timeouts, "master_name": sentinels.primary},
        "broker_transport": SENTINEL,
    }


def import_parts(app: Celery) -> None:
    """Import and make what the first message would, which takes longer than several requests. No
    broker is asked.
    """
    _ = app.connection_for_write().transport
    _ = (app.amqp.producer_pool, app.amqp.router, app.events.Dispatcher, app.backend, app.tasks)


class CeleryDoorbell:
    """Rings by sending a Celery task; a ring that the broker does not take is logged, since
    sweepers ring again. `trouble` is why the last ring failed.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self.trouble: str | None = None

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
            self.trouble = None
        except (OperationalError, OSError, *self._errors) as error:
            self.trouble = str(error)
            logger.warning("doorbell failed", build_id=build_id, error=str(error))


def _waiting(channel: Any, queue: str) -> int:
    # kombu's own count asks Redis for a queue of each priority.
    client = getattr(channel, "client", None)
    return int(client.llen(queue) if client else channel._size(queue))


class BackgroundDoorbell:
    """Rings another doorbell in a thread of its own, so that no request waits for a broker; rings
    that would have to wait too long are left to sweepers.
    """

    def __init__(self, doorbell: CeleryDoorbell) -> None:
        self._doorbell = doorbell
        self._rings: Queue[tuple[str, str]] = Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str | None:
        """See `service.core.Doorbell`."""
        return self._doorbell.trouble

    def ring(self, build_id: str, capability: str) -> None:
        """See `service.core.Doorbell`; returns at once."""
        try:
            self._rings.put_nowait((build_id, capability))
        except Full:
            logger.warning("doorbell not rung: too many rings wait", build_id=build_id)
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="doorbell", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                self._doorbell.ring(*self._rings.get())
            except Exception as error:  # the next ring may do
                logger.error("doorbell failed", exc_info=error)


def queues_of(capabilities: Sequence[str]) -> list[str]:
    """Queues that a worker with these capabilities listens to."""
    return [queue_of(capability) for capability in capabilities]
