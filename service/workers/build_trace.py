"""The trace of one build: its wait, its claim, and the stages that its compile process reports."""

from types import TracebackType

import structlog

from compiler.isolation.messages import Event, Progress, StageStarted
from relaxd.contract.failures import Failure
from service.core import Core
from service.domain import Claim
from service.errors import DatabaseUnavailable
from service.tracing import Role, Span
from service.usecases.builds.tracing import ENDING, Origin, describe, origin_of

PREPARE = "prepare"
"""The time before the first stage: the look for a cached result, the model's download, the start of
the compile process.
"""

logger = structlog.get_logger("relaxd.worker")


class BuildTrace:
    """The spans of a claimed build as its worker sees it, which end with the block; the confined
    compile process sends none. Nothing where nobody traces.
    """

    def __init__(self, core: Core, claim: Claim) -> None:
        self._tracer = core.tracer
        self._attributes = describe(claim.job_id, claim.build_id, claim.target)
        origin = _origin(core, claim) if core.tracer.enabled else None
        self._parent = origin.traceparent if origin else None
        start = origin.claimed_at if origin else None
        self._build = self._tracer.begin(
            "build",
            {**self._attributes, "relaxd.fence": claim.fence},
            parent=self._parent,
            role=Role.CONSUMER,
            start=start,
        )
        if origin:
            self._record("queue", origin.queued_at, max(origin.queued_at, claim.asked_at))
            self._record("claim", claim.asked_at, origin.claimed_at)
        self._stage = self._part(PREPARE, start)

    @property
    def named(self) -> dict[str, str]:
        """The fields of the build's log lines that name its trace."""
        return {"trace_id": trace_id} if (trace_id := self._build.trace_id) else {}

    def hear(self, event: Event) -> None:
        """Take an event of the compile process: a stage is a span until the next begins."""
        match event:
            case StageStarted(stage):
                self._stage.end()
                self._stage = self._part(stage.value)
            case Progress(message=message, total=None):
                self._stage.remark(message)

    def fail(self, failure: Failure) -> None:
        """The stage that runs, and with it the build, failed."""
        self._stage.fail(failure.code)
        self._build.fail(failure.code)

    def note(self, ending: str) -> None:
        """How the build ended, in a word."""
        self._build.note({ENDING: ending})

    def __enter__(self) -> "BuildTrace":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._build.fail(type(error).__name__)
        self._stage.end()
        self._build.end()

    def _part(self, name: str, start: float | None = None) -> Span:
        parent = self._build.traceparent
        return self._tracer.begin(name, self._attributes, parent=parent, start=start)

    def _record(self, name: str, start: float, end: float) -> None:
        """A span beside the build's, of time that is over."""
        span = self._tracer.begin(name, self._attributes, parent=self._parent, start=start)
        span.end(end)


def _origin(core: Core, claim: Claim) -> Origin | None:
    """None while the database is away: a build goes on without its trace."""
    try:
        return origin_of(core, claim.job_id, claim.target)
    except DatabaseUnavailable as error:
        logger.warning("a build is not traced to its request", error=str(error))
        return None
