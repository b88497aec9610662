"""Processes that tests start beside themselves: free ports, a start to wait for, a certain end."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
import uvicorn

START_S = 30
TIED = ("setpriv", "--pdeathsig", "SIGKILL")
"""A server must not outlive the tests, however they end."""


def free_ports(count: int) -> list[int]:
    """Find so many different free ports of this machine."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """A port of this machine, which is free now."""
    return free_ports(1)[0]


@contextmanager
def serve(config: uvicorn.Config, listener: socket.socket) -> Iterator[int]:
    """Serve an application in a thread; yield its port."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def missing(what: str, remedy: str) -> NoReturn:
    """Skip, or fail where the servers are required."""
    message = f"{what} is not installed; {remedy}"
    if os.environ.get("RELAXD_REQUIRE_SERVERS") == "1":
        pytest.fail(message)
    pytest.skip(message)


class Server:
    """A process that serves `url` once `connect` raises none of `refused` any more; it can be ended
    in any way and started again. `environment` adds to that of the tests.
    """

    def __init__(
        self,
        url: str,
        command: Sequence[str],
        log: Path,
        connect: Callable[[], object],
        refused: type[Exception],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self._command = [*TIED, *command]
        self._log = log
        self._connect = connect
        self._refused = refused
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=self._environment,
            )
        until(self._connect, self._refused)

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
def running(server: Server, stop: signal.Signals = signal.SIGINT) -> Iterator[Server]:
    """The server while the block lasts, ended by `stop`."""
    try:
        server.start()
        yield server
    finally:
        server.end(stop)


def until(attempt: Callable[[], object], error: type[Exception]) -> None:
    """Attempt it until it raises no such error any more, for START_S at most."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            attempt()
            return
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
