"""Starts the processes of a command line: the API, with or without workers, or one worker."""

import asyncio
import fcntl
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvicorn
import uvloop

from artifacts.files import storage_errors
from relaxd.http import descriptors
from relaxd.http.connections import protocol
from relaxd.http.hosts import is_loopback
from relaxd.http.interpreter import prefer_latency
from service.api.app import create_app
from service.bootstrap import Services, build
from service.core import Core
from service.db import recovery
from service.db.pools import declare
from service.errors import DatabaseUnavailable, ServiceError
from service.observability import logs, metrics
from service.pools import read_pools
from service.processes.supervisor import Supervisor
from service.settings import Settings, read_settings
from service.usecases.builds import sweeping
from service.workers.scratch import Workshop

WORKERS = "service.workers"
LOCK = "serve.lock"
DRAIN_S = 5

logger = structlog.get_logger("relaxd.serve")


class CannotListen(ServiceError):
    """The address is taken, or not this machine's."""

    code = "serve.cannot_listen"


class InvalidCertificate(ServiceError):
    """The files of the certificate and its key cannot be used for TLS."""

    code = "serve.certificate"


class FolderTaken(ServiceError):
    """Another `relaxd serve` uses the data folder."""

    code = "serve.folder_taken"

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"another relaxd serve uses {folder}",
            hint="stop it, or choose another folder with --data-dir",
        )


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate, with those that lead to a known one, and of its key."""

    chain: Path
    key: Path

    @classmethod
    def of(cls, chain: Path | None, key: Path | None) -> "Certificate | None":
        """The files, None where there are none; raises InvalidCertificate for one of two, and for
        files that are no certificate and its key.
        """
        if chain is None and key is None:
            return None
        if chain is None or key is None:
            raise InvalidCertificate(
                "TLS takes a certificate and its key", hint="give --tls-cert and --tls-key"
            )
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # Without a password, OpenSSL would ask the terminal for that of a key that has one.
            context.load_cert_chain(chain, key, password="")
        except OSError as error:
            raise InvalidCertificate(
                f"cannot use {chain} with {key}: {error}",
                hint="give PEM files of a certificate and its own key, without a password",
            ) from error
        return cls(chain, key)


@dataclass(frozen=True)
class ListenAddress:
    """The API's address, and the file that receives its port; port 0 takes a free one."""

    host: str
    port: int
    port_file: Path | None = None
    certificate: Certificate | None = None


def serve(
    *,
    host: str,
    port: int,
    data_dir: Path | None,
    workers: int,
    port_file: Path | None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> int:
    """Run the API and `workers` worker processes until SIGINT or SIGTERM; the exit status.

    Prints the URL once requests are answered. Raises CannotListen, InvalidCertificate, and what
    `service.bootstrap.build` raises.
    """
    certificate = Certificate.of(tls_cert, tls_key)
    settings = read_settings(**({} if data_dir is None else {"data_dir": data_dir.absolute()}))
    allowed_hosts = f"{settings.allowed_hosts} {host}"
    settings = settings.model_copy(update={"allowed_hosts": allowed_hosts})
    logs.configure(settings.log_level, settings.secrets())
    for chatty in ("uvicorn.error", "alembic.runtime.migration"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    nobody_signs_in = settings.token is None and settings.oidc_issuers is None
    if nobody_signs_in and not is_loopback(host):
        logger.warning(
            "the service asks for no token, and others can reach this address",
            host=host,
            hint="set RELAXD_TOKEN, or listen on 127.0.0.1",
        )
    with _listen(host, port) as listener, _alone(settings, workers):
        services = build(settings, process="relaxd-api")
        recovery.set_aside(settings)
        declare(services.core.db, read_pools(settings.pools))
        shop = Workshop(settings.work_dir, f"api-{os.getpid()}")
        metrics.gather(services.metrics, shop.folder)
        address = ListenAddress(host, listener.getsockname()[1], port_file, certificate)
        environment = {**settings.environment(), metrics.SHARED: str(shop.folder)}
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(services, listener, address, workers, environment))
        finally:
            shop.close()
            services.close()
    return 0


def work(*, once: bool = False) -> int:
    """Run one worker in this process, for one build if `once`; the exit status."""
    from service.workers.main import run_worker

    return run_worker(read_settings(), once=once)


@contextmanager
def _alone(settings: Settings, workers: int) -> Iterator[None]:
    """Keep the data folder from other services like this one, whose workers and settings would mix
    with ours; raises FolderTaken. An API alone shares it.
    """
    if not workers:
        yield
        return
    with storage_errors(f"cannot write to {settings.data_dir}"):
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        file = (settings.data_dir / LOCK).open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderTaken(settings.data_dir) from None
        yield


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="choose another with --port; 0 takes a free one",
        ) from error


async def _run(
    services: Services,
    listener: socket.socket,
    address: ListenAddress,
    workers: int,
    environment: Mapping[str, str],
) -> None:
    certificate = address.certificate
    # uvicorn's own access log is off: the app logs requests with their ids.
    config = uvicorn.Config(
        create_app(services),
        http=protocol(_most_connections(services.settings.max_connections)),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=DRAIN_S,
        ssl_certfile=certificate.chain if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )
    services.prepare()
    prefer_latency()
    server, stopping = uvicorn.Server(config), asyncio.Event()
    _ignore_repeated_signals(stopping)
    child = {**environment, "PYTHONPATH": import_path()}
    supervisor = Supervisor(worker_command(), child, workers, services.settings.drain_s)
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run(stopping))
        group.create_task(_announce(server, address, services.settings, workers))
        group.create_task(_keep_deadlines(services.core, stopping))
        try:
            if not stopping.is_set():
                await server.serve(sockets=[listener])
        finally:
            stopping.set()


def worker_command() -> tuple[str, ...]:
    """The command of a worker that ends with this process; `-P`, since a folder of the working
    directory may have a package's name.
    """
    return (sys.executable, "-P", "-m", WORKERS, "--parent", str(os.getpid()))


def import_path() -> str:
    """Where a child finds this package even if it is not installed."""
    root = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))


def _most_connections(wanted: int) -> int:
    """That many, or what the process's limit of open files leaves, once it is raised."""
    limit = descriptors.raise_limit()
    if (possible := descriptors.connections(limit)) < wanted:
        logger.warning(
            "the limit of open files allows fewer connections than the settings",
            connections=possible,
            limit=limit,
            hint="raise the hard limit: ulimit -Hn, LimitNOFILE= or --ulimit nofile=",
        )
    return min(wanted, possible)


def _ignore_repeated_signals(stopping: asyncio.Event) -> None:
    """Uvicorn handles signals while it runs and raises them again afterwards, when the workers
    still have to be stopped.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)


async def _keep_deadlines(core: Core, stopping: asyncio.Event) -> None:
    """End builds whose deadline has passed, here since there may be no worker."""
    while not stopping.is_set():
        try:
            await asyncio.to_thread(sweeping.end_late, core)
        except DatabaseUnavailable as error:
            logger.warning("deadlines were not looked at", error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), core.settings.sweep_s)


async def _announce(
    server: uvicorn.Server, address: ListenAddress, settings: Settings, workers: int
) -> None:
    while not server.started:
        if server.should_exit:
            return
        await asyncio.sleep(0.02)
    if address.port_file:
        fresh = address.port_file.with_name(f".{address.port_file.name}.{os.getpid()}")
        fresh.write_text(f"{address.port}\n")
        fresh.replace(address.port_file)
    host = f"[{address.host}]" if ":" in address.host else address.host
    beside = (
        f"{workers} worker{'s' if workers != 1 else ''}, data in {settings.data_dir}"
        if workers
        else "API only"
    )
    scheme = "https" if address.certificate else "http"
    print(f"relaxd is ready at {scheme}://{host}:{address.port} ({beside})", flush=True)
