"""Long-lived processes that run cases: one that dies or hangs takes only its case with it, and is
replaced.
"""

import functools
import gc
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tests.conformance.modes import Mode
from tests.conformance.outcomes import Outcome, Result


class Case(Protocol):
    """A case as the workers see it: its name, and the groups that reports have it in."""

    @property
    def name(self) -> str:
        """Unique among the cases of a run."""

    @property
    def suite(self) -> str:
        """The larger group."""

    @property
    def category(self) -> str:
        """The smaller group."""


_CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Plan:
    """A job of the workers; engine: as `module:function`, imported by the workers; seconds: a
    case's limit; target: what relaxd builds for, if not for this machine.
    """

    engine: str
    mode: Mode
    seconds: float
    workers: int
    target: str | None = None


def run(cases: Sequence[Case], plan: Plan) -> Iterator[Result]:
    """The results as they come in."""
    waiting = list(reversed(range(len(cases))))
    workers = [_Worker(cases, plan) for _ in range(min(plan.workers, len(cases)))]
    try:
        while waiting or any(worker.busy for worker in workers):
            for worker in workers:
                if waiting and not worker.busy:
                    worker.give(waiting.pop())
            wait([worker.connection for worker in workers if worker.busy], timeout=0.5)
            yield from (result for worker in workers if (result := worker.result()))
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A forked process, which has the cases by inheritance, and the case that it is at."""

    def __init__(self, cases: Sequence[Case], plan: Plan) -> None:
        self._cases, self._plan = cases, plan
        self._case: Case | None = None
        self._started = 0.0
        self._start()

    @property
    def busy(self) -> bool:
        return self._case is not None

    def give(self, index: int) -> None:
        self._case, self._started = self._cases[index], time.monotonic()
        self.connection.send(index)

    def result(self) -> Result | None:
        """The end of the case that it is at, if that has come."""
        if self._case is None:
            return None
        seconds = time.monotonic() - self._started
        if self.connection.poll():
            try:
                outcome, why = self.connection.recv()
            except EOFError:
                self._process.join()
                outcome, why = (
                    Outcome.CRASH,
                    f"the process ended with status {self._process.exitcode}",
                )
                self._start()
        elif seconds > self._plan.seconds:
            outcome, why = Outcome.TIMEOUT, f"stopped after {self._plan.seconds:.0f} s"
            self.stop()
            self._start()
        else:
            return None
        case, self._case = self._case, None
        return Result(case.name, case.suite, case.category, outcome, why, round(seconds, 2))

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()

    def _start(self) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_serve, args=(theirs, self._cases, self._plan), daemon=True
        )
        self._process.start()
        theirs.close()


def _serve(connection: Connection, cases: Sequence[Case], plan: Plan) -> None:
    """A worker's life: an index in, an outcome out, until the other end is gone."""
    # Without torch, which nothing here needs, importing TVM takes a quarter of the time.
    sys.modules.setdefault("torch", None)
    os.environ["TVM_NUM_THREADS"] = "1"
    _silence()
    module, _, function = plan.engine.partition(":")
    engine = getattr(importlib.import_module(module), function)
    if plan.target:
        engine = functools.partial(engine, target=plan.target)
    while True:
        try:
            index = connection.recv()
        except EOFError:
            return
        connection.send(_ended(engine, cases[index], plan.mode))
        gc.collect()


def _ended(engine: Any, case: Case, mode: Mode) -> tuple[Outcome, str]:
    try:
        return engine(case, mode)
    except Exception as error:
        return Outcome.ERROR, f"untyped {type(error).__name__}: {' '.join(str(error).split())}"[
            :300
        ]


def _silence() -> None:
    """Keep the output of a crashing library out of the report."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
