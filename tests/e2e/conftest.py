"""The service in both of its forms, and a Python that holds no more than a bundle needs."""

import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.deployment import RECOVERY, Deployment
from tests.service.servers import fresh_database, postgres_server, redis_server
from tools import dist

FORMS = ["embedded", pytest.param("scaled", marks=pytest.mark.scaled)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL cluster for all scaled services."""
    with postgres_server() as url:
        yield url


@contextmanager
def deploy(
    request: pytest.FixtureRequest, folder: Path, workers: int, **settings: str
) -> Iterator[Deployment]:
    """The form that `request.param` names; the scaled one with a broker and a database of
    its own.
    """
    if request.param == "embedded":
        with Deployment.start_embedded(folder, **settings) as deployment:
            yield deployment
        return
    cluster = request.getfixturevalue("postgres")
    with redis_server() as broker, fresh_database(cluster, f"test_{uuid4().hex}") as database:
        servers = {"RELAXD_BROKER_URL": broker, "RELAXD_DATABASE_URL": database}
        with Deployment.start_scaled(folder, workers, **servers, **settings) as deployment:
            yield deployment


@pytest.fixture(scope="session", params=FORMS)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One service for all tests that do it no harm."""
    with deploy(request, tmp_path_factory.mktemp(request.param), workers=2) as deployment:
        yield deployment


@pytest.fixture(params=FORMS)
def fragile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """A service of one worker, of one's own to break, quick to notice what is lost."""
    with deploy(request, tmp_path, workers=1, **RECOVERY) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def slim_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment of numpy and relaxd, installed from a wheel as users do."""
    folder = tmp_path_factory.mktemp("slim")
    wheel = next(path for path in dist.build(folder) if path.name.startswith("relaxd-"))
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin/python"
    install = ("install", "--no-compile", "--no-deps")
    _pip("--python", str(python), *install, f"numpy=={version('numpy')}", str(wheel))
    return python


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
