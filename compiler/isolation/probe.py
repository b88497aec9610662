"""Finds out how well the sandbox holds on this machine: a confined process tries what it must not
be able to do.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from compiler.isolation import sandbox
from compiler.isolation.level import Level
from compiler.isolation.linux import cgroups
from compiler.isolation.linux.privileges import Shares
from compiler.isolation.linux.visible_paths import find_paths

_SECONDS = 60
_CANARY = b"relaxd-canary"
_SHARES = Shares(memory_bytes=1 << 30, file_bytes=1 << 20)
_FILES = {"read", "write", "environment"}
"""Attempts on files; to Linux an environment is one."""
_SHORT = 70
_LOWEST_PID = 16
"""A namespace's own processes have lower numbers: none of them is taken for the victim."""


@cache
def level() -> Level:
    """The level of the sandbox for processes that this one starts: what its layers add up to, or
    less where an attempt succeeds all the same.
    """
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-probe-", dir=_base()) as folder,
        _victim() as victim,
        _listener(Path(folder) / "socket") as port,
        _group() as group,
    ):
        outside, inside = Path(folder) / "canary", Path(folder) / "inside"
        outside.write_bytes(_CANARY)
        inside.mkdir()
        numbers = (os.getpid(), victim.pid, port)
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, *map(str, numbers), *group],
            cwd=inside,
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            return Level.NONE
        answer = json.loads(done.stdout.splitlines()[-1])
        reached = {*answer["reached"], *(["signal"] if victim.poll() is not None else [])}
    if reached - _FILES:
        return Level.NONE
    if reached:
        return min(Level(answer["level"]), Level.LIMITS, key=lambda item: item.rank)
    return Level(answer["level"])


def _base() -> str:
    """A folder for temporary files under which the path of a socket is as short as the kernel wants
    it: 107 bytes.
    """
    usual = tempfile.gettempdir()
    short = (folder for folder in (usual, "/tmp", "/var/tmp", "/dev/shm") if len(folder) < _SHORT)
    return next((folder for folder in short if os.access(folder, os.W_OK)), usual)


@contextlib.contextmanager
def _victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing, with a secret in its environment."""
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    environment = {"SECRET": _CANARY.decode()}
    with contextlib.ExitStack() as stack:
        while True:
            process = stack.enter_context(subprocess.Popen(command, env=environment))
            stack.callback(process.kill)
            if process.pid > _LOWEST_PID:
                yield process
                return


@contextlib.contextmanager
def _listener(path: Path) -> Iterator[int]:
    """The port of a server that also listens on a socket in the file system."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
    ):
        named.bind(str(path))
        named.listen()
        yield server.getsockname()[1]


@contextlib.contextmanager
def _group() -> Iterator[list[str]]:
    """The path of a group for the confined process, where this machine lets us make any."""
    if (above := cgroups.parent()) is None:
        yield []
        return
    group = cgroups.make(above, _SHARES.memory_bytes, 64)
    try:
        yield [str(group.path)]
    finally:
        group.kill()
        group.remove()


def _attempts(outside: Path, victim: int, port: int) -> dict[str, Callable[[], bool]]:
    """By name, what says whether it succeeded, or raises OSError."""

    def connected(family: int, address: object) -> bool:
        with socket.socket(family) as client:
            return client.connect_ex(address) == 0  # type: ignore[arg-type]

    def killed() -> bool:
        os.kill(victim, signal.SIGTERM)
        return True

    return {
        "read": lambda: (outside / "canary").read_bytes() == _CANARY,
        "write": lambda: bool((outside / "written").write_bytes(_CANARY)),
        "network": lambda: connected(socket.AF_INET, ("127.0.0.1", port)),
        "socket": lambda: connected(socket.AF_UNIX, str(outside / "socket")),
        "environment": lambda: _CANARY in Path(f"/proc/{victim}/environ").read_bytes(),
        "signal": killed,
    }


def main() -> int:
    """Confine this process, try everything, and print what was reached."""
    parent, victim, port = map(int, sys.argv[1:4])
    group = Path(sys.argv[4]) if sys.argv[4:] else None
    inside = Path.cwd()
    spare = inside / "spare"
    spare.mkdir()
    confinement = sandbox.confine(parent, find_paths((), (inside,)), _SHARES, spare, group)
    reached = []
    for name, attempt in _attempts(inside.parent, victim, port).items():
        with contextlib.suppress(OSError):
            if attempt():
                reached.append(name)
    print(json.dumps({"level": confinement.level.value, "reached": reached}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
