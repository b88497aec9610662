"""Headless Chromium without a network: a page from a file, driven over a pair of pipes by the
DevTools protocol.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from compiler.isolation.linux import privileges

PACKAGE = Path(__file__).with_name("npm")
"""The npm package's modules."""
_NAMES = ("chromium-headless-shell", "chrome-headless-shell")
"""Chromium itself starts nowhere without sockets: it keeps others off its profile by one."""
_OPTIONS = (
    "--remote-debugging-pipe",
    # Its own sandbox needs namespaces. This process has a sandbox already.
    "--no-sandbox",
    "--no-zygote",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--allow-file-access-from-files",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
)
_COMMANDS, _ANSWERS = 3, 4
"""Where Chromium reads and writes with `--remote-debugging-pipe`."""
_ABOVE = 10
_SECONDS_TO_CLOSE = 10.0


class BrowserFailed(Exception):
    """The browser ended, or its page raised an error; the text says which."""


def find() -> str | None:
    """The program, None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def lacking() -> str | None:
    """Why this machine cannot run pages; None when it can."""
    if not (PACKAGE / "index.js").exists():
        return "the npm package's modules are not installed"
    return None if find() else f"{_NAMES[0]} is not installed"


@dataclass
class Page:
    """An open page."""

    process: "subprocess.Popen[bytes]"
    commands: BinaryIO
    answers: BinaryIO
    session: str | None = None
    _number: int = 0
    _rest: bytearray = field(default_factory=bytearray)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, awaited; raises BrowserFailed with the error's message."""
        reply = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in reply:
            thrown = reply["exceptionDetails"].get("exception", {})
            message = str(thrown.get("description") or thrown.get("value"))
            # The stack follows.
            raise BrowserFailed(message.partition("\n")[0])
        return reply["result"].get("value")

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol; raises BrowserFailed."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        try:
            self.commands.write(json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserFailed(self._ended()) from error
        while (answer := self._next()).get("id") != self._number:
            pass
        if "error" in answer:
            raise BrowserFailed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_for(self, event: str) -> None:
        """Reads up to an event of the page; raises BrowserFailed."""
        while self._next().get("method") != event:
            pass

    def _next(self) -> Any:
        while (end := self._rest.find(0)) < 0:
            part = self.answers.read(1 << 20)
            if not part:
                raise BrowserFailed(self._ended())
            self._rest += part
        message = json.loads(self._rest[:end])
        del self._rest[: end + 1]
        return message

    def _ended(self) -> str:
        return f"the browser ended with status {self.process.wait()}"


@contextmanager
def open_page(program: str, url: str, profile: Path) -> Iterator[Page]:
    """A page; its browser keeps what it stores in `profile` and ends with the context. Raises
    BrowserFailed.
    """
    command_reader, commands = os.pipe()
    answers, written = os.pipe()
    command_reader, written = _above(command_reader), _above(written)

    def prepare() -> None:
        privileges.end_with_parent()
        os.dup2(command_reader, _COMMANDS)
        os.dup2(written, _ANSWERS)

    command = [program, *_OPTIONS, f"--user-data-dir={profile}"]
    # Python closes what it does not pass, and could not tell those two from others.
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=prepare
    )
    os.close(command_reader)
    os.close(written)
    with open(commands, "wb", buffering=0) as to, open(answers, "rb", buffering=0) as back:
        page = Page(process, to, back)
        try:
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            attached = page.call("Target.attachToTarget", targetId=target, flatten=True)
            page.session = attached["sessionId"]
            page.call("Page.enable")
            page.call("Page.navigate", url=url)
            page.wait_for("Page.loadEventFired")
            yield page
        finally:
            to.close()
            _end(process)


def seconds_of(page: Page) -> Callable[[], float]:
    """A clock of the processor time that the browser has used, with the processes that it has
    started and that have not ended.
    """
    first = psutil.Process(page.process.pid)

    def seconds() -> float:
        return sum(map(_used, [first, *first.children(recursive=True)]))

    return seconds


def _used(process: Any) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _above(descriptor: int) -> int:
    """The same pipe under a number that no other takes the place of."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    os.close(descriptor)
    return moved


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Chromium ends when its pipe does."""
    try:
        process.wait(_SECONDS_TO_CLOSE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
