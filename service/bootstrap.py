"""The one place that chooses adapters: settings in, services out."""

import time
from dataclasses import dataclass
from functools import partial

from celery import Celery
from prometheus_client import CollectorRegistry

from artifacts import open_store
from artifacts.store import Artifacts
from service.adapters.celery_doorbell import CeleryDoorbell, celery_app
from service.adapters.compiler import ChildCompiler
from service.adapters.oidc import verifier
from service.adapters.signing import signer
from service.adapters.store_usage import limited
from service.core import Compiler, Core
from service.db.engine import Database
from service.db.upgrade import upgrade
from service.jobs import Jobs
from service.observability.metrics import JobCollector
from service.observability.storage import StoreCollector
from service.settings import Settings
from service.usecases.entering import Verify


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

    @property
    def store(self) -> Artifacts:
        """Blobs and the action cache."""
        return self.core.store

    def close(self) -> None:
        """Release connections."""
        self.core.db.close()
        self.celery.close()


def build(settings: Settings, *, compiler: Compiler | None = None) -> Services:
    """Open the database, bringing its tables up to date, the store and the broker; raises
    ServiceError and StoreError.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    db = Database(settings.database)
    upgrade(db)
    app = celery_app(settings)
    core = Core(
        settings=settings,
        db=db,
        store=limited(open_store(settings.store), settings, db),
        compiler=compiler or ChildCompiler(),
        doorbell=CeleryDoorbell(app),
        clock=time.time,
        signer=partial(signer, settings),
    )
    metrics = CollectorRegistry()
    metrics.register(JobCollector(core))
    metrics.register(StoreCollector(core))
    return Services(settings, core, Jobs(core), app, metrics, verifier(settings))
