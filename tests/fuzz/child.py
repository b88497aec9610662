"""A process that answers questions with a function, and is replaced when it dies or hangs."""

import gc
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from compiler.isolation import garbage

_CONTEXT = multiprocessing.get_context("spawn")
_ANSWERS = 150
"""After so many, a process is replaced: libraries that it has loaded stay in memory."""


@dataclass(frozen=True)
class Died:
    """The process ended, or was ended, before it had answered.

    slow: it was ended although it had not used up its processor time.
    """

    why: str
    slow: bool = False


class Child:
    """function: as `module:function`, imported there; seconds: an answer's limit, of processor
    time; patience: how many times as long a machine that others keep busy may take; torch: whether
    the function needs it; preload: a shared library that comes before all others.
    """

    def __init__(
        self,
        function: str,
        seconds: float,
        patience: float = 8.0,
        torch: bool = False,
        preload: str | None = None,
    ) -> None:
        self._torch, self._preload = torch, preload
        self.name = function.partition(":")[2]
        self._function, self._seconds, self._patience = function, seconds, patience
        self._process: Any = None

    def ask(self, question: Any) -> Any:
        """Call the function in a child process; raises Died where there is no answer."""
        if self._process is None:
            self._start()
        self._connection.send(question)
        self._answers += 1
        overdue = self._overdue()
        if overdue:
            self.stop()
            return overdue
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            died = Died(f"exit status {self._process.exitcode}: {self._last_words()}")
            self.stop()
            return died
        if self._answers >= _ANSWERS:
            self.stop()
        return answer

    def _overdue(self) -> Died | None:
        """Waits for an answer, or for the end of the time for it."""
        began, end = self._processor_time(), time.monotonic() + self._patience * self._seconds
        while not self._connection.poll(1.0):
            used = self._processor_time() - began
            if used > self._seconds:
                return Died(f"no answer after {used:.0f} s of processor time")
            if time.monotonic() > end:
                return Died(f"no answer, after {used:.0f} s of processor time alone", slow=True)
        return None

    def _processor_time(self) -> float:
        """The resources that the process and its children have used so far."""
        try:
            text = Path(f"/proc/{self._process.pid}/stat").read_text()
        except FileNotFoundError:
            return 0.0
        fields = text.rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._errors.unlink(missing_ok=True)
            self._process = None

    def _start(self) -> None:
        self._answers = 0
        self._connection, theirs = _CONTEXT.Pipe()
        descriptor, name = tempfile.mkstemp(prefix="relaxd-fuzz-", suffix=".log")
        os.close(descriptor)
        self._errors = Path(name)
        self._process = _CONTEXT.Process(
            target=_serve, args=(theirs, self._function, name, self._torch), daemon=True
        )
        if self._preload is not None:
            os.environ["LD_PRELOAD"] = self._preload
        try:
            self._process.start()
        finally:
            os.environ.pop("LD_PRELOAD", None)
        theirs.close()

    def _last_words(self) -> str:
        """The end of what it wrote."""
        return " ".join(self._errors.read_text(errors="replace").split())[-300:]


def _serve(connection: Connection, name: str, errors: str, torch: bool) -> None:
    """Answers until the other end is gone."""
    if torch:
        # It has to come before TVM.
        importlib.import_module("torch")
    else:
        # Without it importing TVM takes a quarter of the time.
        sys.modules["torch"] = None
    os.environ["TVM_NUM_THREADS"] = "1"
    log = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    module, _, function = name.partition(":")
    answer = getattr(importlib.import_module(module), function)
    # What was imported stays. A build makes a million objects, of which few are in circles.
    gc.freeze()
    garbage.collect_seldom()
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(answer(question))
