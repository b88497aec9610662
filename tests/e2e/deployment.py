"""A running service for the tests: its processes, its clients, and how to kill them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from relaxd.client import Client
from tests.service.servers import TIED
from tests.support import plain_http

ROOT = Path(__file__).parent.parent.parent
START_S = 60
RECOVERY = {"RELAXD_LEASE_S": "4", "RELAXD_SWEEP_S": "0.5", "RELAXD_RING_AFTER_S": "1"}


def until(result: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for a true `result`, and return it; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := result()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return value


class Deployment:
    """The service as `commands` start it, the first of which listens; `settings` are environment
    variables.

    Everything it keeps lies under `folder`, which outlives `kill` and a new `start`.
    """

    def __init__(
        self, folder: Path, commands: list[list[str]], settings: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.commands = commands
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith("RELAXD_")
        }
        own = {"RELAXD_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT)}
        self.settings = {**plain, **own, **settings}
        self.started_in = ROOT
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    @classmethod
    def start_embedded(cls, folder: Path, **settings: str) -> "Deployment":
        """`relaxd serve`."""
        return cls(folder, [["serve", "--workers", "1"]], settings)

    @classmethod
    def start_scaled(cls, folder: Path, workers: int, **settings: str) -> "Deployment":
        """`relaxd api` and several `relaxd worker`; the settings name the servers they share."""
        return cls(folder, [["api"], *([["worker"]] * workers)], settings)

    def __enter__(self) -> "Deployment":
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start every process and wait until the API is ready."""
        port = self.folder / "port"
        port.unlink(missing_ok=True)
        listening = ["--port", "0", "--port-file", str(port)]
        for index, command in enumerate(self.commands):
            self._spawn([*command, *([] if index else listening)])
        until(
            lambda: (port.exists() and port.read_text().strip()) or self._dead(),
            START_S,
            f"the start; see {self.log}",
        )
        self.url = f"http://127.0.0.1:{port.read_text().strip()}"
        until(lambda: plain_http.get(f"{self.url}/readyz").status_code == 200, START_S, "readiness")

    def _spawn(self, command: list[str]) -> None:
        with self.log.open("ab") as log:
            program = [*TIED, sys.executable, "-P", "-m", "relaxd", *command]
            self.processes.append(
                subprocess.Popen(
                    program,
                    cwd=self.started_in,
                    env=self.settings,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _dead(self) -> bool:
        gone = [process.args for process in self.processes if process.poll() is not None]
        assert not gone, f"{gone} ended: {self.log.read_text()[-3000:]}"
        return False

    @property
    def log(self) -> Path:
        """The output of the processes."""
        return self.folder / "log.txt"

    def stop(self) -> None:
        """Ask every process to end; kill what does not."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                break
        self.kill()

    def tree(self) -> list[psutil.Process]:
        """Every process of the service, compilers included."""
        results = []
        for process in self.processes:
            if process.poll() is None:
                parent = psutil.Process(process.pid)
                results += [parent, *parent.children(recursive=True)]
        return results

    def kill(self) -> None:
        """`kill -9` of everything at once."""
        doomed = self.tree()
        for process in doomed:
            _kill(process)
        psutil.wait_procs(doomed, timeout=10)
        for process in self.processes:
            process.wait(10)
        self.processes = []

    def compiling(self) -> list[psutil.Process]:
        """The processes that compile right now: forks of the workers' zygotes."""
        forks = [
            process for process in self.tree() if _runs(process, "-m", "compiler.process.zygote")
        ]
        pids = {process.pid for process in forks}
        # The zygotes themselves are children of workers, not of each other.
        zygotes = {process.pid for process in forks if _parent(process) not in pids}
        return [process for process in forks if _parent(process) in zygotes]

    def kill_compiling_worker(self) -> None:
        """`kill -9` of the worker, not of its compile process, which must end by itself."""
        compiler = until(self.compiling, 60, "a compile process")[0]
        worker = compiler.parent().parent()
        _kill(worker)
        until(
            lambda: not compiler.is_running() or compiler.status() == psutil.STATUS_ZOMBIE,
            10,
            "the end of the orphan",
        )
        if any(process.pid == worker.pid for process in self.processes):
            self._spawn(["worker"])

    def client(self) -> Client:
        """relaxd's own client."""
        return Client(self.url)

    def post(self, model: Path | bytes, request: str, wait: float = 300) -> httpx.Response:
        """Do what `curl -F model=@FILE -F request=JSON /v1/compile?wait=SECONDS` does."""
        content = model if isinstance(model, bytes) else model.read_bytes()
        files: dict[str, Any] = {"model": ("model.onnx", content), "request": (None, request)}
        return plain_http.post(
            f"{self.url}/v1/compile", params={"wait": f"{wait:g}"}, files=files, timeout=wait + 60
        )

    def events(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All events of a job that is over."""
        with self.client() as client:
            return [{"type": event.type, **event.data} for event in client.job(job["id"]).events()]


def _runs(process: psutil.Process, *arguments: str) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return any(
        tuple(command[index : index + len(arguments)]) == arguments for index in range(len(command))
    )


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def _kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return
