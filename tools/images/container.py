"""Runs one service's processes by bubblewrap as the compose file says: user, environment, read-only
root, volumes, limits.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tools.images.compose import Service

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Spec:
    """The common settings of a service's containers.

    root: bubblewrap's arguments that make the root file system.
    volumes: folders of this machine by the path at which a container has them.
    """

    service: Service
    ids: tuple[int, int]
    root: tuple[str, ...]
    volumes: Mapping[str, Path]
    environment: Mapping[str, str]
    hosts: Path

    def command(self, words: Iterable[str]) -> list[str]:
        """The command line that runs `words` in a new container."""
        temporary = [word for path in self.service.tmpfs for word in ("--tmpfs", path)]
        volumes = [
            word for path, folder in self.volumes.items() for word in ("--bind", str(folder), path)
        ]
        variables = [word for pair in self.environment.items() for word in ("--setenv", *pair)]
        return [
            *self._without_privileges(),
            *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
            *("--hostname", self.service.name, "--die-with-parent", "--new-session", "--clearenv"),
            *(*self.root, "--proc", "/proc", "--dev", "/dev"),
            *(*temporary, *volumes, "--ro-bind", str(self.hosts), "/etc/hosts"),
            *("--remount-ro", "/", *variables, "--chdir", "/", "--", *words),
        ]

    def _without_privileges(self) -> list[str]:
        user, group = self.ids
        return [
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
            *("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"),
        ]

    def inside(self, process: int, words: Iterable[str]) -> list[str]:
        """The command line that runs `words` beside a process, in its container."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return [
            *("nsenter", f"--target={process}", "--mount", "--pid", "--ipc", "--uts", "--"),
            *(*self._without_privileges(), "env", "--ignore-environment", *variables, *words),
        ]

    def run(self, words: Iterable[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a short command in a container of its own beside the service's."""
        return subprocess.run(
            self.command(words), capture_output=True, text=True, timeout=timeout, check=False
        )


class Container:
    """A service that runs; its output goes to a file."""

    def __init__(self, spec: Spec, words: Iterable[str], log: Path) -> None:
        self.spec = spec
        self.log = log
        self.groups = _limited(spec.service)
        entering = "".join(
            f"echo $$ > {shlex.quote(str(g / 'cgroup.procs'))}; " for g in self.groups
        )
        command = ["sh", "-c", f'{entering}exec "$@"', "sh", *spec.command(words)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def alive(self) -> bool:
        """True if it has not ended by itself."""
        return self.process.poll() is None

    def check(self, words: Iterable[str]) -> str | None:
        """Find faults with a command that is run inside; None if nothing is."""
        service = self._service()
        if not service:
            return "it has not started"
        command = self.spec.inside(service[0].pid, words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return (done.stderr or done.stdout or "it failed") if done.returncode else None

    def stop(self) -> bool:
        """Ask the service to end, as an engine does; whether it did within its grace period."""
        for process in self._service():
            process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(self.spec.service.grace)
            return True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False

    def _service(self) -> list[psutil.Process]:
        """The service's first process: bubblewrap's own init is its parent."""
        if not self.alive():
            return []
        inits = psutil.Process(self.process.pid).children()
        return [child for init in inits for child in init.children()]

    def peak(self) -> int | None:
        """The most memory in bytes that the service and its children took."""
        for group in self.groups:
            for name in ("memory.max_usage_in_bytes", "memory.peak"):
                if (group / name).exists():
                    return int((group / name).read_text())
        return None

    def release(self) -> None:
        """Remove its control groups."""
        for group in self.groups:
            for _ in range(50):
                try:
                    group.rmdir()
                    break
                except OSError:  # a process of it has not quite ended
                    time.sleep(0.1)


def _limited(service: Service) -> list[Path]:
    """New control groups with the service's limits; none where they cannot be written."""
    name = f"relaxd-images-{os.getpid()}-{service.name}"
    if (CGROUPS / "cgroup.controllers").exists():
        files = {CGROUPS / name: {"memory.max": service.memory, "pids.max": service.pids}}
    else:
        files = {
            CGROUPS / "memory" / name: {"memory.limit_in_bytes": service.memory},
            CGROUPS / "pids" / name: {"pids.max": service.pids},
        }
    created: list[Path] = []
    for group, limits in files.items():
        try:
            group.mkdir()
            created.append(group)
            for file, limit in limits.items():
                (group / file).write_text(str(limit))
        except OSError:
            for each in created:
                each.rmdir()
            return []
    return created
