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


class Server:
    """A server process at `url`, which can be ended in any way and started again."""

    def __init__(
        self, url: str, command: Sequence[str], log: Path, connect: Callable[[], object]
    ) -> None:
        self.url = url
        self._command = [*TIED, *command]
        self._log = log
        self._connect = connect
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, cwd="/"
            )
        _until(self._connect, (psycopg.OperationalError, redis.ConnectionError))

    def end(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send it that signal and wait for its end."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """The server, until the block ends."""
    try:
        server.start()
        yield server
    finally:
        server.end()


@contextmanager
def redis_process(port: int | None = None) -> Iterator[Server]:
    """A fresh Redis that keeps nothing, at any port if none is given."""
    program = shutil.which("redis-server") or missing("Redis")
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="relaxd-redis-") as folder:
        settings = {
            "port": str(port),
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "no",
            "dir": folder,
        }
        options = [word for key, value in settings.items() for word in (f"--{key}", value)]

        def connect() -> None:
            with redis.Redis(port=port) as client:
                client.ping()

        url = f"redis://127.0.0.1:{port}/0"
        with running(Server(url, [program, *options], Path(folder) / "log", connect)) as server:
            yield server


@contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """URL of a Redis as `redis_process` starts it."""
    with redis_process(port) as server:
        yield server.url


@contextmanager
def postgres_process() -> Iterator[Server]:
    """A fresh PostgreSQL cluster, into which anyone local gets; its URL is that of the
    administrative database.
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
        command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        url = f"postgresql://relaxd@127.0.0.1:{port}/postgres"

        def connect() -> None:
            psycopg.connect(url).close()

        with running(
            Server(url, [*unprivileged, *command, *options], folder / "log", connect)
        ) as server:
            yield server


@contextmanager
def postgres_server() -> Iterator[str]:
    """URL of the administrative database of a cluster as `postgres_process` starts it."""
    with postgres_process() as server:
        yield server.url


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


def _until(attempt: Callable[[], object], error: tuple[type[Exception], ...]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            attempt()
            return
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
