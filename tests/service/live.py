"""The API on a free port over fakes: real HTTP, a real database and store, a compiler that only
writes files.
"""

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import httpx
import structlog
import uvicorn
from prometheus_client import CollectorRegistry

from artifacts import open_store
from compiler.targets import registry
from relaxd.provenance.signing import signer
from service.adapters.celery_doorbell import celery_app
from service.adapters.oidc import trust_issuers
from service.adapters.store_usage import limit_store
from service.api.app import create_app
from service.bootstrap import Services
from service.core import Compiler, Core
from service.db.engine import Database
from service.db.upgrade import upgrade
from service.domain import Kind
from service.jobs import Jobs
from service.settings import Settings
from service.tracing import NO_TRACER, Tracer
from service.usecases.builds import claiming, fleet
from service.workers.runner import Runner
from service.workers.scratch import Workshop
from tests.service.fakes import FakeCompiler
from tests.service.tables import copy_sqlite
from tests.support import plain_http
from tests.support.servers import serve

MODEL = b"a model"


@dataclass
class QueueDoorbell:
    """Hands rings to the thread that stands in for a worker."""

    rings: "queue.Queue[str | None]" = field(default_factory=queue.Queue)
    trouble: str | None = None

    def ring(self, build_id: str, target: str) -> None:
        self.rings.put(build_id)


@dataclass
class Live:
    """A running service; `compiler.behaviour` decides what becomes of builds."""

    url: str
    services: Services
    compiler: FakeCompiler
    http: httpx.Client

    def compile(self, model: bytes = MODEL, request: str = "{}", **params: Any) -> httpx.Response:
        files: dict[str, Any] = {"model": ("m.onnx", model), "request": (None, request)}
        return self.http.post("/v1/compile", files=files, params=params)

    def announce(self) -> None:
        """See `announce`."""
        announce(self.services.core)

    def upload(self, data: bytes = MODEL) -> str:
        return self.services.store.blobs.put(data).digest


def announce(core: Core) -> None:
    """Have a worker stand in the fleet that compiles for everything, for as long as a lease."""
    able = {target.capability for target in registry()}
    fleet.announce(core, "worker", "here", [*able, Kind.INSPECT.value], 1)


@contextmanager
def services_over(
    folder: Path,
    compiler: Compiler,
    doorbell: QueueDoorbell,
    tracer: Tracer = NO_TRACER,
    **settings: Any,
) -> Iterator[Services]:
    chosen = Settings(data_dir=folder, **settings)
    if chosen.database_url is None and not (file := folder / "jobs.sqlite").exists():
        copy_sqlite(file)
    db = Database(chosen.database)
    upgrade(db)
    store = limit_store(open_store(chosen.store), chosen, db)
    sign = partial(signer, chosen.signing_key, chosen.signing_command)
    core = Core(chosen, db, store, compiler, doorbell, time.time, sign, tracer)
    app, metrics, (verify, sign_in) = celery_app(chosen), CollectorRegistry(), trust_issuers(chosen)
    services = Services(chosen, core, Jobs(core), app, metrics, verify, sign_in)
    try:
        yield services
    finally:
        services.close()


def _drop(logger: object, method: str, event: object) -> NoReturn:
    raise structlog.DropEvent


@contextmanager
def quiet() -> Iterator[None]:
    """Structured logs go nowhere unless a test captures them."""
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.reset_defaults()


@contextmanager
def live(folder: Path, tracer: Tracer = NO_TRACER, **settings: Any) -> Iterator[Live]:
    compiler, doorbell = FakeCompiler(), QueueDoorbell()
    with (
        quiet(),
        services_over(folder, compiler, doorbell, tracer, **settings) as services,
        working(services.core, doorbell),
        listening(services) as url,
    ):
        token = services.settings.token
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        with plain_http.Client(base_url=url, headers=headers, timeout=20) as http:
            yield Live(url, services, compiler, http)


@contextmanager
def working(
    core: Core, doorbell: QueueDoorbell, name: str = "worker"
) -> Iterator[threading.Thread]:
    """A thread that builds whatever it is rung for."""
    stop, workshop = threading.Event(), Workshop(core.settings.work_dir, name)
    runner = Runner(core, workshop, stop, lambda claim, ending, seconds: None)

    def work() -> None:
        while (build_id := doorbell.rings.get()) is not None:
            if claim := claiming.take(core, build_id, name):
                runner.run(claim)
        doorbell.rings.put(None)  # another worker may wait at the same doorbell

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        doorbell.rings.put(None)
        thread.join()
        workshop.close()


@contextmanager
def listening(services: Services) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            create_app(services),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        with serve(config, listener) as port:
            yield f"http://127.0.0.1:{port}"
