"""The zygote: imports the compiler, reads nothing else, and forks a compile process a request.

Started by `isolation.zygote` with a socket; each request brings four descriptors, for standard
input, output, messages and the line on which the id of the fork and its exit status are told.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
from typing import Any, NoReturn

from compiler.errors import CompileError
from compiler.isolation import garbage
from compiler.isolation.linux import privileges
from compiler.isolation.zygote import END, LONGEST, MESSAGES, NUMBER
from compiler.toolchain import versions

_DESCRIPTORS = 4
_USED = (
    "compiler.process.__main__",
    "compiler.bisection.locate",
    "compiler.build",
    "compiler.backends.backend",
    "compiler.ir.onnx.inspection",
    "compiler.ir.onnx.reader",
    "compiler.passes.framework.dump",
    "compiler.passes.framework.kernel_notes",
    "compiler.passes.framework.node_names",
    "compiler.passes.memory_report",
    "compiler.process.reports",
    "compiler.runtimes.canonical",
    "compiler.verify.report",
)
"""What builds and inspections of ONNX files import; torch stays out."""


def main() -> None:
    """Serve until the process that started this one ends or closes the socket."""
    # Whoever could write to its memory would take part in every build that follows.
    privileges.hide_memory()
    garbage.collect_seldom()
    sys.modules["torch"] = None  # type: ignore[assignment]
    for name in _USED:
        importlib.import_module(name)
    with contextlib.suppress(CompileError):
        # Each build asks for them, which takes 60 ms the first time, and says what is missing.
        versions.versions()
    # Pages that no fork's collection of garbage touches stay shared among all of them.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _serve(requests)


def _serve(requests: socket.socket) -> None:
    lines: dict[int, socket.socket] = {}
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == ended:
                os.read(ended, LONGEST)
                _tell_ends(lines)
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, LONGEST, _DESCRIPTORS)
            if not request:
                return
            _fork(json.loads(request), descriptors, lines)


def _tell_ends(lines: dict[int, socket.socket]) -> None:
    while lines:
        forked, status, used = os.wait4(-1, os.WNOHANG)
        if not forked:
            return
        with lines.pop(forked) as line:
            code = os.waitstatus_to_exitcode(status)
            _send(line, END.pack(code, used.ru_utime + used.ru_stime))


def _send(line: socket.socket, word: bytes) -> None:
    try:
        line.send(word)
    except OSError:
        # Nobody waits for this fork any more, and the kernel has ended it.
        return


def _fork(request: dict[str, Any], descriptors: list[int], lines: dict[int, socket.socket]) -> None:
    line = socket.socket(fileno=descriptors.pop())
    try:
        forked = os.fork()
    except OSError as error:
        print(f"relaxd: the zygote cannot fork: {error}", file=sys.stderr, flush=True)
        with line:
            _send(line, NUMBER.pack(-1))
    else:
        if forked == 0:
            _become(request, descriptors, line)
        lines[forked] = line
    for descriptor in descriptors:
        os.close(descriptor)


def _become(request: dict[str, Any], descriptors: list[int], line: socket.socket) -> NoReturn:
    """Go on as `python -m compiler.process` would have begun."""
    from compiler.process import __main__

    status = 1
    try:
        os.setsid()
        privileges.end_with_parent(signal.SIGTERM)
        privileges.show_memory()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(line, [NUMBER.pack(os.getpid())], [handle])
        source, output, messages = descriptors
        messages = fcntl.fcntl(messages, fcntl.F_DUPFD, MESSAGES + 1)
        for descriptor, number in ((source, 0), (output, 1), (output, 2), (messages, MESSAGES)):
            os.dup2(descriptor, number)
        # Lines of other forks, and the socket for requests, are none of a model's business.
        os.closerange(MESSAGES + 1, os.sysconf("SC_OPEN_MAX"))
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        tempfile.tempdir = None
        sys.argv = ["python -m compiler.process", *request["arguments"]]
        status = __main__.main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
