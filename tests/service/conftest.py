"""The service's parts over fakes, on every kind of database."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from artifacts import open_store
from service.bootstrap import Services, build
from service.core import Core
from service.db.engine import Database
from service.domain import Claim
from service.jobs import Jobs
from service.settings import Settings
from service.usecases.builds import claiming
from service.workers.runner import Runner
from service.workers.scratch import Workshop
from tests.service import tables
from tests.service.fakes import FakeClock, FakeCompiler, FakeDoorbell
from tests.service.servers import fresh_database, postgres_server, redis_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_postgres(postgres: str) -> str:
    """The cluster, with a template of a database that has all tables."""
    tables.copy_template(postgres)
    return postgres


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.scaled)])
def database(request: pytest.FixtureRequest) -> str:
    """Which kind of database."""
    kind: str = request.param
    return kind


@pytest.fixture
def database_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with all tables."""
    if database == "sqlite":
        yield tables.copy_sqlite(tmp_path / "jobs.sqlite")
        return
    cluster = request.getfixturevalue("migrated_postgres")
    with fresh_database(cluster, f"test_{uuid4().hex}", tables.TEMPLATE) as url:
        yield url


@pytest.fixture
def empty_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if database == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.sqlite'}"
        return
    with fresh_database(request.getfixturevalue("postgres"), f"test_{uuid4().hex}") as url:
        yield url


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(data_dir=tmp_path, database_url=database_url, max_attempts=2, lease_s=30)


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
def doorbell() -> FakeDoorbell:
    return FakeDoorbell()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def core(
    settings: Settings, compiler: FakeCompiler, doorbell: FakeDoorbell, clock: FakeClock
) -> Iterator[Core]:
    db = Database(settings.database)
    yield Core(settings, db, open_store(settings.store), compiler, doorbell, clock)
    db.close()


@pytest.fixture
def jobs(core: Core) -> Jobs:
    return Jobs(core)


@pytest.fixture
def model(core: Core) -> str:
    return core.store.blobs.put(b"a model").digest


@pytest.fixture
def shutdown() -> threading.Event:
    return threading.Event()


@pytest.fixture
def endings() -> list[str]:
    """How each run of `runner` ended."""
    return []


@pytest.fixture
def runner(core: Core, shutdown: threading.Event, endings: list[str]) -> Iterator[Runner]:
    workshop = Workshop(core.settings.work_dir, "worker")
    yield Runner(core, workshop, shutdown, lambda claim, ending, seconds: endings.append(ending))
    workshop.close()


@pytest.fixture
def answer(core: Core, runner: Runner) -> Callable[[str], Claim | None]:
    """Act as a worker for which the doorbell rings."""

    def answer(build_id: str) -> Claim | None:
        claim = claiming.take(core, build_id, "worker")
        if claim:
            runner.run(claim)
        return claim

    return answer


@pytest.fixture(params=["embedded", pytest.param("scaled", marks=pytest.mark.scaled)])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a service that real worker processes join, quick to notice what is lost."""
    quick: dict[str, Any] = {
        "data_dir": tmp_path,
        "lease_s": 2,
        "sweep_s": 0.3,
        "ring_after_s": 0.5,
        "max_attempts": 5,
    }
    if request.param == "embedded":
        yield Settings(**quick)
    else:
        broker = request.getfixturevalue("redis_url")
        with fresh_database(request.getfixturevalue("postgres"), f"test_{uuid4().hex}") as url:
            yield Settings(**quick, database_url=url, broker_url=broker)


@pytest.fixture
def services(deployment: Settings) -> Iterator[Services]:
    services = build(deployment)
    yield services
    services.close()


@pytest.fixture
def start(deployment: Settings, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a worker process, given its module and settings other than the deployment's; all are
    killed at the end.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(module: str, settings: Settings = deployment) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)}
        with (tmp_path / f"worker{len(started)}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", module],
                    env=environment,
                    cwd=ROOT,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
    for log in sorted(tmp_path.glob("worker*.log")):
        print(log.name, log.read_text()[-4000:])
