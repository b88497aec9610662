"""The worker process: Celery in front, sweeper beside, until a signal or the parent's end."""

import os
import signal
import tempfile
import threading
import warnings
from typing import Any

import structlog
from celery import Celery, signals
from celery.platforms import SecurityWarning
from prometheus_client import start_http_server

from compiler.isolation import zygote
from compiler.isolation.linux import cgroups, privileges
from service.adapters.celery_doorbell import queues_of
from service.adapters.messages import TASK
from service.bootstrap import Services, build
from service.observability import logs
from service.settings import Settings
from service.workers.courier import deliver_until
from service.workers.janitor import tidy_until
from service.workers.worker import Worker

logger = structlog.get_logger("relaxd.worker")


ONCE_S = 30.0
"""How long a worker for one build waits for it."""


def run_worker(
    settings: Settings, concurrency: int = 1, *, parent: int | None = None, once: bool = False
) -> int:
    """Work until SIGTERM or SIGINT, giving back builds that do not end within `drain_s`, or until
    `parent` (a process id) is gone, or with `once` for one build; the exit status.
    """
    logs.configure(settings.log_level, settings.secrets())
    privileges.hide_memory()
    why_not = cgroups.settle()
    logger.info("groups for builds", cgroups="made" if why_not is None else why_not)
    with zygote.keep_zygote(start=True):
        services = build(settings, process="relaxd-worker")
        try:
            return serve(services, concurrency, parent=parent, once=once)
        finally:
            services.close()


def serve(
    services: Services, concurrency: int, *, parent: int | None = None, once: bool = False
) -> int:
    """Do what `run_worker` does, on existing services; takes over the process's signals."""
    worker = Worker(services.core, slots=concurrency, registry=services.metrics)
    # What a killed worker's compile processes had there is swept with the worker's own files.
    tempfile.tempdir = str(worker.scratch)
    if services.settings.worker_metrics_port is not None:
        start_http_server(services.settings.worker_metrics_port, registry=services.metrics)
    register(services.celery, worker)
    sweeper = threading.Thread(target=_sweep, args=(worker, parent), name="sweeper", daemon=True)
    beside = (worker.draining, services.core)
    janitor = threading.Thread(target=tidy_until, args=beside, name="janitor", daemon=True)
    courier = threading.Thread(target=deliver_until, args=beside, name="courier", daemon=True)

    def drain(**_: Any) -> None:
        worker.drain()

    signals.worker_shutting_down.connect(drain)
    signals.setup_logging.connect(_keep_logging)
    sweeper.start()
    janitor.start()
    courier.start()
    try:
        return _answer_once(worker) if once else _listen(services.celery, worker, concurrency)
    finally:
        worker.draining.set()
        worker.shutdown.set()
        sweeper.join()
        janitor.join()
        courier.join()
        worker.close()


def register(app: Celery, worker: Worker) -> None:
    """Let the worker answer the doorbell of the application."""

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def answer(build_id: str) -> None:
        worker.answer(build_id)


def _listen(app: Celery, worker: Worker, concurrency: int) -> int:
    # Celery warns root of pickled messages, which it takes none of here.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    celery = app.Worker(
        hostname=f"relaxd@{worker.name}",
        pool="threads",
        concurrency=concurrency,
        queues=queues_of(worker.capabilities),
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
        quiet=True,
    )
    celery.start()
    return int(celery.exitcode or 0)


def _answer_once(worker: Worker) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.drain())
    worker.answer_once(ONCE_S)
    return 0


def _keep_logging(**_: Any) -> None:
    """A listener to this signal keeps Celery from setting up logging its own way."""


def _sweep(worker: Worker, parent: int | None) -> None:
    """Sweep; whatever ends that but a drain ends the process, for a worker that does not sweep is
    not whole.
    """
    try:
        worker.sweep_until_drained(lambda: parent is None or os.getppid() == parent)
    finally:
        if not worker.draining.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
