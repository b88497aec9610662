"""Compile processes that are forked from one that has imported everything, in place of processes
that each begin with that: some 0.1 s in place of 2. They confine themselves like any other.
"""

import array
import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn
from unittest.mock import patch

from compiler.isolation import child, privileges

LONGEST = 1 << 16
POLL_S = 0.01


@contextmanager
def forked_children(folder: Path) -> Iterator[None]:
    """Meanwhile `run_child` in this process takes its processes from a zygote; `folder` gets the
    socket between the two.
    """
    address = str(folder / "zygote")
    command = [sys.executable, "-m", "tests.robustness.zygote", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as zygote:
        try:
            assert zygote.stdout is not None
            zygote.stdout.readline()
            names = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT")}
            names["TimeoutExpired"] = subprocess.TimeoutExpired
            forks = SimpleNamespace(Popen=lambda *a, **k: Forked(address, *a, **k), **names)
            with patch.object(child, "subprocess", forks):
                yield
        finally:
            zygote.kill()


class Forked:
    """What `child` uses of a Popen."""

    def __init__(
        self,
        address: str,
        command: Sequence[str],
        *,
        stdin: IO[bytes],
        pass_fds: tuple[int],
        cwd: Path,
        env: dict[str, str],
        **_: Any,
    ) -> None:
        reader, writer = os.pipe()
        self.stdout: IO[bytes] = open(reader, "rb", buffering=0)  # noqa: SIM115
        arguments = list(command[command.index("--messages") :])
        spec = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": env}).encode()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._line.connect(address)
            descriptors = array.array("i", [stdin.fileno(), writer, pass_fds[0]])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            self._line.sendmsg([spec], rights)
        finally:
            os.close(writer)
        (self.pid,) = struct.unpack("i", self._line.recv(4))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._line, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            status = self._line.recv(4)
            (self.returncode,) = struct.unpack("i", status) if status else (-signal.SIGKILL,)
            self._line.close()
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def main() -> None:
    privileges.end_with_parent()
    # What a compile process does before it reads its job.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from compiler import __main__, build
    from compiler.bisection import locate
    from compiler.verify import report

    del build, locate, report
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1])
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(line, __main__.main)
        line.close()


def _keep(line: socket.socket, run: Any) -> NoReturn:
    """Fork the process, and wait for it in place of the one that asked for it."""
    spec, rights, _, _ = line.recvmsg(LONGEST, socket.CMSG_SPACE(12))
    descriptors = list(array.array("i", rights[0][2]))
    keeper, forked = os.getpid(), os.fork()
    if forked == 0:
        line.close()
        _become(json.loads(spec), descriptors, keeper, run)
    for descriptor in descriptors:
        os.close(descriptor)
    line.send(struct.pack("i", forked))
    _, status = os.waitpid(forked, 0)
    with contextlib.suppress(OSError):
        line.send(struct.pack("i", os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(spec: dict[str, Any], descriptors: list[int], keeper: int, run: Any) -> NoReturn:
    status = 1
    try:
        os.setsid()
        source, output, messages = descriptors
        for descriptor, number in ((source, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, number)
        os.close(source)
        os.close(output)
        os.chdir(spec["cwd"])
        os.environ.clear()
        os.environ.update(spec["env"])
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        arguments = spec["arguments"]
        arguments[arguments.index("--messages") + 1] = str(messages)
        arguments[arguments.index("--parent") + 1] = str(keeper)
        sys.argv = ["python -m compiler", *arguments]
        status = run()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
