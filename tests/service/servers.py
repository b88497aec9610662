"""Servers that tests start for themselves: Redis and PostgreSQL, on free ports, in folders of their
own.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
import redis

START_S = 30
TIED = ("setpriv", "--pdeathsig", "SIGKILL")
"""A server must not outlive the tests, however they end."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def missing(what: str) -> NoReturn:
    """Skip, or fail where the servers are required."""
    message = f"{what} is not installed; on Debian: apt-get install redis-server postgresql"
    if os.environ.get("RELAXD_REQUIRE_SERVERS") == "1":
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """URL of a fresh Redis that keeps nothing, at any port if none is given."""
    program = shutil.which("redis-server") or missing("Redis")
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="relaxd-redis-") as folder:
        command = [
            program,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            folder,
        ]
        with _running([*TIED, *command], Path(folder) / "log"):
            with redis.Redis(port=port) as client:
                _until(client.ping, redis.ConnectionError)
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgres_server() -> Iterator[str]:
    """URL of the administrative database of a fresh PostgreSQL cluster, into which anyone local
    gets.
    """
    programs = _postgres_programs() or missing("PostgreSQL")
    # PostgreSQL refuses to run as root.
    unprivileged = (
        ("--reuid=postgres", "--regid=postgres", "--clear-groups") if os.geteuid() == 0 else ()
    )
    with tempfile.TemporaryDirectory(prefix="relaxd-postgres-") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o755)
        (folder / "data").mkdir()
        if unprivileged:
            shutil.chown(folder / "data", "postgres", "postgres")
        initdb = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "relaxd",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        subprocess.run([*TIED, *unprivileged, *initdb], check=True, capture_output=True, cwd="/")
        settings = {
            "fsync": "off",
            "unix_socket_directories": "",
            "listen_addresses": "127.0.0.1",
            "max_connections": "200",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [
            str(programs / "postgres"),
            "-D",
            str(folder / "data"),
            "-p",
            str(port),
            *options,
        ]
        with _running([*TIED, *unprivileged, *command], folder / "log"):
            url = f"postgresql://relaxd@127.0.0.1:{port}/postgres"
            _until(lambda: psycopg.connect(url).close(), psycopg.OperationalError)
            yield url


@contextmanager
def fresh_database(admin_url: str, name: str) -> Iterator[str]:
    """URL of a new database of the cluster, dropped at the end."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield admin_url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _postgres_programs() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = debian[-1] if debian else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd="/")
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(attempt: Callable[[], object], error: type[Exception]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            attempt()
            return
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
