"""A compile process that enters its sandbox and then does what the model's text names as `kind`.

Its first argument, and that of all that it starts, is a token by which a row finds what is left.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from compiler.isolation import output, sandbox
from compiler.isolation.messages import ChildJob, CompileJob, Failed, StageStarted, Succeeded
from compiler.process import __main__ as child
from relaxd.contract.states import Stage
from tests.service.fakes import write_bundle

MIB = 1 << 20
_token: list[str] = []


def segfault() -> None:
    ctypes.string_at(0)


def memory() -> None:
    """No process of several takes more than its own limit."""
    for _ in range(3):
        if not os.fork():
            break
    stored = [bytearray(os.urandom(4096) * 256) for _ in range(100)]
    time.sleep(600)
    del stored


def stall() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    command = (sys.executable, "-S", "-c", "import time; time.sleep(600)", _token[0])
    subprocess.Popen(command, start_new_session=True)
    while True:
        time.sleep(600)


def forks() -> None:
    """150 processes, where the kernel lets them: half of the children leave their session, and
    their parents end.
    """
    with contextlib.suppress(BlockingIOError):
        for number in range(100):
            if not os.fork():
                if number % 2:
                    os.setsid()
                    if os.fork():
                        os._exit(0)
                break
    time.sleep(600)


def disk() -> None:
    """No file is larger than its own limit."""
    for number in range(20):
        Path(f"file {number}").write_bytes(os.urandom(8 * MIB))
    time.sleep(600)


def good() -> None:
    pass


KINDS: dict[str, Callable[[], None]] = {
    function.__name__: function for function in (segfault, memory, stall, forks, disk, good)
}


def _run(
    job: ChildJob, stream: TextIO, confinement: sandbox.Confinement, trusting: bool
) -> Succeeded | Failed:
    assert isinstance(job, CompileJob)
    child._send(stream, StageStarted(Stage.CODEGEN))
    KINDS[json.loads(Path(job.model).read_text())["kind"]]()
    return Succeeded(write_bundle(job, output.partial_of(job)).to_json())


if __name__ == "__main__":
    _token.append(sys.argv.pop(1))
    child._run = _run
    sys.exit(child.main())
