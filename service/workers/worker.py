"""A worker: answers doorbells, announces itself, and looks for lost work."""

import faulthandler
import os
import secrets
import socket
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from service.adapters.messages import take_dropped
from service.core import Core
from service.domain import Claim, Kind
from service.errors import DatabaseUnavailable
from service.observability.metrics import WorkerMetrics
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
        self.capabilities = (*offers.compiles, Kind.INSPECT.value)
        self._verifies = {name: status.value for name, status in offers.verifies.items()}
        self._sandbox = offers.sandbox
        self._report_sandbox()
        self.draining, self.shutdown = threading.Event(), threading.Event()
        self._workshop = Workshop(core.settings.work_dir, self.name)
        self._runner = Runner(core, self._workshop, self.shutdown, self._observe)
        self._busy: set[str] = set()
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

    def _answer(self) -> None:
        while not self.draining.is_set():
            upcoming = scheduling.next_build(self._core, self.capabilities)
            if upcoming is None:
                return
            if self._keys and answering.end_queued(self._core, upcoming, self._keys):
                continue
            if claim := claiming.take(self._core, upcoming, self.name):
                self._pause_after(self._run(claim))

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
        self._metrics.dropped.inc(take_dropped())
        self._metrics.reclaimed.inc(sweeping.reclaim(self._core))
        self._metrics.rung_again.inc(
            sweeping.ring_again(self._core, self.capabilities, self._slots - len(self._busy))
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

    def _observe(self, claim: Claim, ending: str, seconds: float) -> None:
        self._metrics.seconds.labels(claim.target, ending).observe(seconds)
