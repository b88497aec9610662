"""The one place that chooses adapters: settings in, services out."""

import os
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from celery import Celery
from prometheus_client import CollectorRegistry

from artifacts import open_store
from artifacts.store import Artifacts
from relaxd.provenance.signing import signer
from service.adapters.celery_doorbell import (
    RING_S,
    BackgroundDoorbell,
    CeleryDoorbell,
    celery_app,
    import_parts,
)
from service.adapters.compiler import ChildCompiler
from service.adapters.oidc import trust_issuers
from service.adapters.store_usage import limit_store
from service.core import Compiler, Core
from service.db import recovery
from service.db.engine import Database
from service.db.upgrade import upgrade
from service.errors import TracesUnavailable
from service.jobs import Jobs
from service.observability.metrics import JobCollector
from service.observability.storage import StoreCollector
from service.settings import Settings
from service.tracing import NO_TRACER, Tracer
from service.usecases.tenants.entering import Verify

if TYPE_CHECKING:
    from service.adapters.sign_in import SignIn


@dataclass(frozen=True)
class Services:
    """Everything that an entry point needs; `metrics` holds the job database's figures and takes
    more.
    """

    settings: Settings
    core: Core
    jobs: Jobs
    celery: Celery
    metrics: CollectorRegistry
    verify: Verify | None = None
    sign_in: "SignIn | None" = None
    ringing: Celery | None = None
    """The application that the doorbell is rung with."""

    @property
    def store(self) -> Artifacts:
        """Blobs and the action cache."""
        return self.core.store

    def prepare(self) -> None:
        """Do what the first request would wait for, in a process that is about to serve."""
        if self.ringing is not None:
            import_parts(self.ringing)

    def close(self) -> None:
        """Send the last traces and release connections."""
        self.core.tracer.close()
        self.core.db.close()
        self.celery.close()
        if self.ringing is not None:
            self.ringing.close()


def build(
    settings: Settings, *, compiler: Compiler | None = None, process: str = "relaxd"
) -> Services:
    """Open the database, bringing its tables up to date, the store and the broker; traces name the
    process. Raises ServiceError and StoreError.
    """
    tracer = _tracer(settings, process)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    db = Database(settings.database)
    with recovery.borrow(settings):
        upgrade(db)
    app, ringing = celery_app(settings), celery_app(settings, patience_s=RING_S)
    doorbell = CeleryDoorbell(ringing)
    core = Core(
        settings=settings,
        db=db,
        store=limit_store(open_store(settings.store), settings, db),
        compiler=compiler or ChildCompiler(),
        doorbell=doorbell if settings.broker_url is None else BackgroundDoorbell(doorbell),
        clock=time.time,
        signer=partial(signer, settings.signing_key, settings.signing_command),
        tracer=tracer,
    )
    metrics = CollectorRegistry()
    metrics.register(JobCollector(core))
    metrics.register(StoreCollector(core))
    verify, sign_in = trust_issuers(settings)
    return Services(settings, core, Jobs(core), app, metrics, verify, sign_in, ringing)


def _tracer(settings: Settings, process: str) -> Tracer:
    if settings.traces_url is None:
        return NO_TRACER
    try:
        # Only where it is asked for: it is an extra, and takes 100 ms to import.
        from service.adapters.opentelemetry_traces import otlp_tracer
    except ModuleNotFoundError as error:
        raise TracesUnavailable from error
    instance = f"{socket.gethostname()}-{os.getpid()}"
    return otlp_tracer(settings.traces_url, process, instance, settings.traces_ratio)
