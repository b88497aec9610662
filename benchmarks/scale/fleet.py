"""The scaled form on this machine: PostgreSQL, Redis, S3, API processes and stub workers."""

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import psycopg

from tests.service.servers import fresh_database, postgres_server, redis_server
from tests.support.s3 import s3_server
from tests.support.servers import TIED

ROOT = Path(__file__).parents[2]
START_S = 120


@dataclass
class Fleet:
    """URLs of the API processes, the database, and the way to start workers."""

    urls: list[str]
    database: str
    start_workers: Callable[[int], None]
    processes: list[subprocess.Popen[bytes]]

    def processor_seconds(self) -> dict[str, float]:
        """Processor time so far, by kind of process; what queues for the processor takes none."""
        used: dict[str, float] = defaultdict(float)
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used[_kind(process)] += times.user + times.system
        return used

    def count(self, condition: str) -> int:
        """Builds for which an SQL condition holds."""
        with psycopg.connect(self.database) as connection:
            query = f"SELECT count(*) FROM builds WHERE {condition}"
            return int(connection.execute(query).fetchone()[0])


def _kind(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    kinds = {"relaxd api": "api", "benchmarks.scale.worker": "worker", "postgres": "postgresql"}
    kinds |= {"redis-server": "redis", "weed": "s3"}
    return next((kind for sign, kind in kinds.items() if sign in command), "other")


@contextmanager
def fleet(folder: Path, apis: int, store: str) -> Iterator[Fleet]:
    """`apis` API processes, ready; `store` is `s3` or `local`."""
    with ExitStack() as stack:
        database = stack.enter_context(
            fresh_database(stack.enter_context(postgres_server()), "scale")
        )
        settings = {
            "RELAXD_DATABASE_URL": database,
            "RELAXD_BROKER_URL": stack.enter_context(redis_server()),
            "RELAXD_DATA_DIR": str(folder / "data"),
            "RELAXD_LOG_LEVEL": "WARNING",
        }
        if store == "s3":
            server = stack.enter_context(s3_server())
            settings |= {**server.environment, "RELAXD_STORE_URL": "s3://relaxd/scale"}
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, processes)

        def start(name: str, *command: str) -> None:
            processes.append(_start(folder / f"{name}.log", settings, *command))

        for number in range(apis):
            port = ["--port", "0", "--port-file", str(folder / f"port{number}")]
            start(f"api{number}", "relaxd", "api", *port)

        def start_workers(count: int) -> None:
            for number in range(count):
                start(f"worker{number}", "benchmarks.scale.worker", "1")

        urls = [ready(folder / f"port{number}") for number in range(apis)]
        yield Fleet(urls, database, start_workers, processes)


def _start(log: Path, settings: Mapping[str, str], *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [*TIED, sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
        )


def ready(port_file: Path) -> str:
    """The URL of a service that writes its port there, once it answers."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if port_file.exists():
            url = f"http://127.0.0.1:{port_file.read_text().strip()}"
            if httpx.get(f"{url}/readyz").is_success:
                return url
        time.sleep(0.1)
    raise TimeoutError(f"the API did not start; see {port_file.parent}")


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
