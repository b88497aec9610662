"""Servers that tests start for themselves: Redis and PostgreSQL, on free ports, in folders of their
own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis
from sqlalchemy import make_url

from tests.support.servers import TIED, Server, free_port, missing, running

DEBIAN = "on Debian: apt-get install redis-server postgresql"


@contextmanager
def redis_process(
    port: int | None = None, *arguments: str, file: Path | None = None
) -> Iterator[Server]:
    """A fresh Redis that keeps nothing, at any port if none is given, with further arguments and
    a file of settings.
    """
    program = shutil.which("redis-server") or missing("Redis", DEBIAN)
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
        log, refused = Path(folder) / "log", redis.ConnectionError
        command = [program, *([str(file)] if file else []), *options, *arguments]
        with running(Server(url, command, log, connect, refused)) as server:
            yield server


@contextmanager
def redis_sentinel(port: int, name: str, quorum: int = 1) -> Iterator[Server]:
    """A Sentinel that finds within a second that the Redis at a port, which it knows by that name,
    is gone, and where so many do, has its replica made the primary.
    """
    with tempfile.TemporaryDirectory(prefix="relaxd-sentinel-") as folder:
        lines = (
            f"sentinel monitor {name} 127.0.0.1 {port} {quorum}",
            f"sentinel down-after-milliseconds {name} 1000",
            f"sentinel failover-timeout {name} 5000",
        )
        (Path(folder) / "sentinel.conf").write_text("\n".join(lines))
        # The file comes first, and Redis' own options after it.
        with redis_process(None, "--sentinel", file=Path(folder) / "sentinel.conf") as server:
            yield server


@contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """URL of a Redis as `redis_process` starts it."""
    with redis_process(port) as server:
        yield server.url


@contextmanager
def postgres_process(
    within: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A fresh PostgreSQL cluster, into which anyone local gets, in a new folder, within that one if
    one is given, with further settings; its URL is that of the administrative database.
    """
    options = ["-U", "relaxd", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    with _cluster("initdb", *options, within=within, settings=settings) as server:
        yield server


@contextmanager
def postgres_replica(primary: Server) -> Iterator[Server]:
    """A streaming replica of a running cluster; its URL is that of the administrative database."""
    url = make_url(primary.url)
    origin = ["-h", "127.0.0.1", "-p", str(url.port), "-U", "relaxd"]
    with _cluster("pg_basebackup", *origin, "-R", "-X", "stream", "-c", "fast") as server:
        yield server


@contextmanager
def _cluster(
    program: str,
    *arguments: str,
    within: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A PostgreSQL whose folder a program makes, at a free port."""
    programs = _postgres_programs() or missing("PostgreSQL", DEBIAN)
    # PostgreSQL refuses to run as root.
    unprivileged = (
        ("--reuid=postgres", "--regid=postgres", "--clear-groups") if os.geteuid() == 0 else ()
    )
    with tempfile.TemporaryDirectory(prefix="relaxd-postgres-", dir=within) as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o755)
        (folder / "data").mkdir(mode=0o700)
        if unprivileged:
            shutil.chown(folder / "data", "postgres", "postgres")
        make = [str(programs / program), "-D", str(folder / "data"), *arguments]
        subprocess.run([*TIED, *unprivileged, *make], check=True, capture_output=True, cwd="/")
        every = {
            "fsync": "off",
            "unix_socket_directories": "",
            "listen_addresses": "127.0.0.1",
            "max_connections": "500",
            **(settings or {}),
        }
        options = [word for key, value in every.items() for word in ("-c", f"{key}={value}")]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        url = f"postgresql://relaxd@127.0.0.1:{port}/postgres"

        def connect() -> None:
            psycopg.connect(url).close()

        full, refused = [*unprivileged, *command, *options], psycopg.OperationalError
        with running(Server(url, full, folder / "log", connect, refused)) as server:
            yield server


@contextmanager
def postgres_server() -> Iterator[str]:
    """URL of the administrative database of a cluster as `postgres_process` starts it."""
    with postgres_process() as server:
        yield server.url


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """While the block lasts, the database takes no writes, as on a primary that became a replica.
    Connections from before are gone.
    """
    name = url.rpartition("/")[2]

    def change(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as operator:
            operator.execute("SET default_transaction_read_only = off")
            operator.execute(f'ALTER DATABASE "{name}" {statement}')
            others = "pid <> pg_backend_pid() AND datname = current_database()"
            operator.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
            )

    change("SET default_transaction_read_only = on")
    try:
        yield
    finally:
        change("RESET default_transaction_read_only")


@contextmanager
def fresh_database(admin_url: str, name: str, template: str = "template1") -> Iterator[str]:
    """URL of a new database of the cluster, a copy of the template, dropped at the end."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    yield admin_url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _postgres_programs() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    result = debian[-1] if debian else shutil.which("initdb")
    return Path(result).resolve().parent if result else None
