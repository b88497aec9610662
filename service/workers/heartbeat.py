"""The heartbeat of a running build: renews its lease, passes events on, and detects its end."""

import threading
import time
from enum import Enum, auto
from types import TracebackType
from typing import Any

import structlog

from compiler.isolation.messages import Event, Log, Progress, StageStarted
from compiler.isolation.usage import StageUsage
from service.core import Core
from service.db.transaction import Note
from service.domain import Claim, EventType
from service.errors import DatabaseUnavailable, StaleClaim
from service.usecases.builds import reporting
from service.workers.build_trace import BuildTrace

_TICK_S = 1.0
_BATCH = 200

logger = structlog.get_logger("relaxd.worker")


class Stop(Enum):
    """Why a build must stop: its job was cancelled, the claim is no longer ours, or the worker is
    shutting down.
    """

    CANCELLED = auto()
    LOST = auto()
    SHUTDOWN = auto()


def _step_of(event: Progress) -> dict[str, Any]:
    """The data of the event; those of a step without parts have no counts."""
    counts = {"done": event.done, "total": event.total, "seconds_left": event.seconds_left}
    counted = {name: count for name, count in counts.items() if count is not None}
    return {"stage": event.stage.value, "message": event.message, **counted}


class Pulse:
    """A thread about one claim while the block lasts; `stop` is the reason why the build must end,
    None while it may go on.
    `trace` hears every event, too. usage, stored_bytes: what the attempt used, for whoever records
    it.
    """

    def __init__(
        self,
        core: Core,
        claim: Claim,
        shutdown: threading.Event,
        trace: BuildTrace | None = None,
    ) -> None:
        self._core = core
        self.trace = trace or BuildTrace(core, claim)
        self._claim = claim
        self._shutdown = shutdown
        self.usage: list[StageUsage] = []
        self.stored_bytes = 0
        self._ended = threading.Event()
        self._stop: Stop | None = None
        self._lock = threading.Lock()
        self._notes: list[Note] = []
        self._log = logger.bind(job_id=claim.job_id, build_id=claim.build_id)
        self._thread = threading.Thread(
            target=self._run, name=f"pulse-{claim.build_id}", daemon=True
        )

    @property
    def stop(self) -> Stop | None:
        """Why the build must end; the first reason stays."""
        if self._stop is None and self._shutdown.is_set():
            self._stop = Stop.SHUTDOWN
        return self._stop

    def hear(self, event: Event) -> None:
        """Take an event of the compile process; a stage is written at once, lines within about
        a second. Raises StaleClaim.
        """
        self.trace.hear(event)
        match event:
            case StageStarted(stage):
                self._notes.append((EventType.BUILD_STAGE, {"stage": stage.value}))
                self.flush()
            case Progress():
                self._notes.append((EventType.BUILD_STAGE, _step_of(event)))
            case Log(line):
                self._notes.append((EventType.BUILD_LOG, {"line": line}))
        if len(self._notes) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the events received so far; keeps them while the database is away. Raises
        StaleClaim.
        """
        with self._lock:
            count = len(self._notes)
            if count == 0:
                return
            try:
                reporting.progress(self._core, self._claim, self._notes[:count])
            except DatabaseUnavailable as error:
                self._log.warning("events are held back", error=str(error))
                return
            del self._notes[:count]

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        lease, renewed = self._core.settings.lease_s, time.monotonic()
        while not self._ended.wait(min(_TICK_S, lease / 3)):
            try:
                if reporting.beat(self._core, self._claim):
                    self._stop = self._stop or Stop.CANCELLED
                self.flush()
                renewed = time.monotonic()
            except StaleClaim:
                self._stop = self._stop or Stop.LOST
                return
            except DatabaseUnavailable as error:
                self._log.warning("no heartbeat", error=str(error))
                if time.monotonic() - renewed > lease:
                    self._stop = self._stop or Stop.LOST
                    return
