"""Starts compile processes as forks of one that has imported the compiler, as Android starts its
programs: a build begins after a hundredth of a second instead of after the import of TVM.
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
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from compiler.isolation.starting import found_by

MESSAGES = 3
"""The file descriptor that a fork writes its messages to."""
LONGEST = 1 << 16
"""Bytes of a request to the zygote."""
NUMBER = struct.Struct("i")
END = struct.Struct("id")
"""How a fork ended: its exit status, and the processor seconds of all its processes."""

_current: "Zygote | None" = None


@contextmanager
def keep_zygote(*, start: bool = False) -> Iterator[None]:
    """Within it, `run_child` takes its processes from a zygote of this process, which starts with
    the first of them, or now where `start` is set, and ends with the block or with this process.
    """
    global _current
    before, zygote = _current, Zygote()
    _current = zygote
    try:
        if start:
            zygote.start()
        yield
    finally:
        _current = before
        zygote.close()


def current() -> "Zygote | None":
    """The zygote of this process, None where it keeps none."""
    return _current


class Zygote:
    """One process that has imported the compiler and has read no model; any thread may fork it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def start(self) -> int:
        """The process id; it is started where it does not run. Raises OSError."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._end()
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                command = [
                    sys.executable,
                    "-P",
                    "-m",
                    "compiler.process.zygote",
                    str(theirs.fileno()),
                ]
                with theirs:
                    self._process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                        start_new_session=True,
                        env=found_by(),
                    )
                self._line = ours
            return self._process.pid

    def fork(
        self,
        arguments: Callable[[int], Sequence[str]],
        *,
        stdin: IO[bytes],
        messages: int,
        cwd: Path,
        env: dict[str, str],
    ) -> "Forked":
        """A fork that runs `python -m compiler.process`; raises OSError.

        A zygote that was killed closes its line before the kernel tells its end: where it has done
        so, the fork is one of the next.

        arguments: of the command line, given the id of the parent. messages: the descriptor that
        the fork has as MESSAGES.
        """

        def once() -> "Forked":
            parent = self.start()
            words = {"arguments": list(arguments(parent)), "cwd": str(cwd), "env": env}
            request = json.dumps(words).encode()
            if len(request) > LONGEST:
                raise OSError(f"{len(request)} bytes of arguments and environment")
            try:
                return self._fork(request, stdin.fileno(), messages)
            except ConnectionError:
                self._end_of(parent)
                raise

        try:
            return once()
        except ConnectionError:
            return once()

    def _fork(self, request: bytes, stdin: int, messages: int) -> "Forked":
        reader, writer = os.pipe()
        stdout = open(reader, "rb", buffering=0)  # noqa: SIM115
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._ask(request, [stdin, writer, messages, theirs.fileno()])
            return Forked(line, stdout)
        except BaseException:
            line.close()
            stdout.close()
            raise
        finally:
            os.close(writer)

    def _ask(self, request: bytes, descriptors: list[int]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with self._lock:
            if self._line is None:
                raise ConnectionResetError("the zygote has ended")
            self._line.sendmsg([request], rights)

    def _end_of(self, pid: int) -> None:
        """Collect that process, unless another thread did."""
        with self._lock:
            if self._process is not None and self._process.pid == pid:
                self._end()

    def close(self) -> None:
        """End the process, and with it its forks; idempotent."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None and self._line is not None:
            self._line.close()
            self._process.kill()
            self._process.wait()
        self._process = self._line = None


class Forked:
    """A fork as `subprocess.Popen` is a program, and how it ended."""

    def __init__(self, line: socket.socket, stdout: IO[bytes]) -> None:
        """Waits until the fork runs; raises ChildProcessError where none could be made, and
        ConnectionResetError where the zygote has ended.
        """
        word, handles, _, _ = socket.recv_fds(line, NUMBER.size, 1)
        if not word:
            raise ConnectionResetError("the zygote has ended")
        if not handles:
            raise ChildProcessError("the zygote could not fork, or the fork ended as it began")
        (self.pid,) = NUMBER.unpack(word)
        self.stdout = stdout
        self._line = line
        self._handle = handles[0]
        self._status: int | None = None
        self.cpu_seconds: float | None = None
        """Of it and of all its descendants that were waited for, once it has ended; None where the
        zygote ended first.
        """

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """`poll`, once it has ended; raises subprocess.TimeoutExpired."""
        if self._status is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._line, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired("a compile process", timeout or 0)
            # With the zygote, its forks end too.
            word = self._line.recv(END.size)
            self._status, self.cpu_seconds = (
                END.unpack(word) if word else (-signal.SIGKILL.value, None)
            )
            self._line.close()
            os.close(self._handle)
        return self._status

    def terminate(self) -> None:
        """Send SIGTERM, to this process and to no later one of its id."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)
