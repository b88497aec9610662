"""The service in both of its forms, and a Python that holds no more than a bundle needs."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.e2e.deployment import ROOT, Deployment


@pytest.fixture(scope="session", params=["embedded", pytest.param("scaled", marks=pytest.mark.scaled)])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One service for all tests that do it no harm."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        deployment = Deployment.embedded(folder)
    else:
        deployment = Deployment.scaled(folder, 2, **request.getfixturevalue("servers"))
    with deployment:
        yield deployment


@pytest.fixture(scope="session")
def slim_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment of numpy, apache-tvm-ffi and relaxd, installed from a wheel as users do."""
    folder = tmp_path_factory.mktemp("slim")
    source = folder / "source"
    source.mkdir()
    for name in ("relaxd", "service", "compiler", "artifacts"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin/python"
    pins = [f"{name}=={version(name)}" for name in ("numpy", "apache-tvm-ffi", "typing-extensions")]
    _pip("--python", str(python), "install", "--no-deps", *pins, *map(str, folder.glob("*.whl")))
    return python


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
