"""A worker: answers doorbells, announces itself, and looks for lost work."""

import faulthandler
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from compiler.targets import TargetStatus
from service.adapters.messages import take_dropped
from service.core import Core
from service.domain import Claim, Kind
from service.errors import DatabaseUnavailable, InvalidSettings
from service.observability.metrics import WorkerMetrics
from service.pools import expand
from service.settings import Settings
from service.usecases.builds import answering, claiming, fleet, scheduling, sweeping
from service.workers.patience import FIRST_PAUSE_S, LONGEST_PAUSE_S
from service.workers.runner import WITHOUT_STORE, Runner
from service.workers.scratch import Workshop

logger = structlog.get_logger("relaxd.worker")


class Worker:
    """`slots` builds at a time; `answer` may be called from as many threads. Use as a context:
    leaving it removes the worker's record.
    """

    def __init__(self, core: Core, *, slots: int, registry: CollectorRegistry) -> None:
        self._core = core
        self._slots = slots
        self._metrics = WorkerMetrics(registry)
        self.hostname = socket.gethostname()
        self.name = f"{self.hostname}-{os.getpid()}-{secrets.token_hex(3)}"
        offers = core.compiler.capabilities()
        self.capabilities = _limit((*offers.compiles, Kind.INSPECT.value), core.settings)
        self._verifies = {name: status.value for name, status in offers.verifies.items()}
        self._sandbox = offers.sandbox
        self._report_sandbox()
        self.draining, self.shutdown = threading.Event(), threading.Event()
        self._workshop = Workshop(core.settings.work_dir, self.name)
        self._runner = Runner(
            core, self._workshop, self.shutdown, self._observe, self._metrics.add_usage
        )
        self._busy: set[str] = set()
        self._elsewhere: frozenset[str] = frozenset()
        self._without_store_s = FIRST_PAUSE_S

    @cached_property
    def _keys(self) -> dict[str, Any] | None:
        return answering.report(self._core)

    @property
    def scratch(self) -> Path:
        """A folder of this worker's, removed with it or after its process died."""
        return self._workshop.folder

    def answer(self, build_id: str) -> None:
        """Do whatever is queued, in fair order: a doorbell only wakes, whichever build it is rung
        for. A database that is away ends it; whoever sweeps rings again.
        """
        try:
            self._answer()
        except DatabaseUnavailable as error:
            logger.warning("doorbell unanswered", build_id=build_id, error=str(error))

    def answer_once(self, patience_s: float) -> None:
        """Do one build; return without one where none that this worker takes comes within
        `patience_s`, or the worker is to end.
        """
        until = time.monotonic() + patience_s
        while not self.draining.is_set() and time.monotonic() < until:
            try:
                if (upcoming := self._next()) and self._do(upcoming):
                    return
            except DatabaseUnavailable as error:
                logger.warning("no build was looked for", error=str(error))
            self.draining.wait(FIRST_PAUSE_S)

    def _answer(self) -> None:
        while not self.draining.is_set() and (upcoming := self._next()):
            self._do(upcoming)

    def _next(self) -> str | None:
        return scheduling.next_build(self._core, self.capabilities, self._elsewhere)

    def _do(self, build_id: str) -> bool:
        """Run or answer the build; False where another worker took it, or it waits for an equal
        one.
        """
        if self._keys and answering.end_queued(self._core, build_id, self._keys):
            return True
        if claim := claiming.take(self._core, build_id, self.name):
            self._pause_after(self._run(claim))
        return claim is not None

    def _run(self, claim: Claim) -> str:
        self._busy.add(claim.build_id)
        try:
            return self._runner.run(claim)
        finally:
            self._busy.discard(claim.build_id)

    def _pause_after(self, ending: str) -> None:
        """Take no build for a while where the store is full: each would only wait again."""
        if ending == WITHOUT_STORE:
            self.draining.wait(self._without_store_s)
            self._without_store_s = min(2 * self._without_store_s, LONGEST_PAUSE_S)
        else:
            self._without_store_s = FIRST_PAUSE_S

    def sweep(self) -> None:
        """One round: announce ourselves, take builds from silent workers, ring for queued builds
        that we have room for.
        """
        fleet.announce(
            self._core,
            self.name,
            self.hostname,
            self.capabilities,
            self._slots,
            self._verifies,
            self._sandbox.value,
            self._keys,
        )
        self._elsewhere = self._better_elsewhere()
        self._metrics.dropped.inc(take_dropped())
        self._metrics.reclaimed.inc(sweeping.reclaim(self._core))
        self._metrics.rung_again.inc(
            sweeping.ring_again(
                self._core, self.capabilities, self._slots - len(self._busy), self._elsewhere
            )
        )

    def drain(self) -> None:
        """Take no more builds; those that run have `drain_s` to end, then they are given back."""
        if not self.draining.is_set():
            self.draining.set()
            last = threading.Timer(self._core.settings.drain_s, self.shutdown.set)
            last.daemon = True
            last.start()

    def sweep_until_drained(self, alive: Callable[[], bool] = lambda: True) -> None:
        """Sweep every `sweep_s`, until the worker is to take no more builds or `alive` denies;
        survives a database that is away. A sweep that hangs for `sweep_limit_s` ends the process at
        once, with where its threads are on standard error.
        """
        settings = self._core.settings
        while alive():
            faulthandler.dump_traceback_later(settings.sweep_limit_s, exit=True)
            try:
                self.sweep()
            except DatabaseUnavailable as error:
                logger.warning("sweep failed", error=str(error))
            finally:
                faulthandler.cancel_dump_traceback_later()
            if self.draining.wait(settings.sweep_s):
                return

    def close(self) -> None:
        """Remove the worker's record; every build must have ended. While the database is away, the
        record stays until it is old.
        """
        self._workshop.close()
        try:
            fleet.depart(self._core, self.name)
        except DatabaseUnavailable as error:
            logger.warning("departed unrecorded", error=str(error))

    def _report_sandbox(self) -> None:
        level = self._sandbox
        allowed = level.isolates_files or self._core.settings.allow_unsandboxed_torchscript
        report = logger.info if level.isolates_files else logger.warning
        # Not `level`, which is the line's own.
        report("sandbox probed", sandbox=level.value, torchscript="run" if allowed else "refused")

    def _better_elsewhere(self) -> frozenset[str]:
        """Targets of which another worker executes builds that this one only emulates."""
        return frozenset(
            target
            for worker in fleet.live_workers(self._core)
            for target, status in worker.verifies.items()
            if status == TargetStatus.EXECUTED != self._verifies.get(target)
        )

    def _observe(self, claim: Claim, ending: str, seconds: float) -> None:
        self._metrics.seconds.labels(claim.target, ending).observe(seconds)


def _limit(offered: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """The capabilities of those offered that the settings leave; raises InvalidSettings."""
    if not settings.capabilities:
        return offered
    wanted = expand(settings.capabilities)
    taken = tuple(name for name in offered if name in wanted)
    if not taken:
        raise InvalidSettings(
            f"RELAXD_CAPABILITIES: this machine has none of {', '.join(wanted)}",
            hint="`relaxd targets` says what each needs; this machine has " + ", ".join(offered),
        )
    return taken
