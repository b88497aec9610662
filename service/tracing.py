"""Traces: the spans of time that a request and its builds take, for whoever collects them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from typing import Protocol

Attributes = Mapping[str, str | int | float | bool]
NOTHING: Attributes = {}


class Role(Enum):
    """The role of a span: work on a request from outside, work on what was queued, or a part of
    either.
    """

    SERVER = auto()
    CONSUMER = auto()
    PART = auto()


class Span(Protocol):
    """A stretch of time under a name."""

    @property
    def traceparent(self) -> str | None:
        """The span as a W3C `traceparent`, None where nobody traces."""

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, None where nobody traces."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Replace the name."""

    def remark(self, text: str) -> None:
        """Note what happens within the span now."""

    def fail(self, reason: str) -> None:
        """Mark the span as failed."""

    def end(self, end_time: float | None = None) -> None:
        """End the span, now or at a time in seconds since the epoch."""


class Tracer(Protocol):
    """Makes spans."""

    enabled: bool
    """Whether anybody collects them."""

    def begin(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        parent: str | None = None,
        role: Role = Role.PART,
        start: float | None = None,
    ) -> Span:
        """A span until it is ended, below the span of a `traceparent`, or else below the active
        one; `start` is in seconds since the epoch, None for now.
        """

    def active(self, span: Span) -> AbstractContextManager[None]:
        """Makes the span that of the work in the block."""

    def current(self) -> str | None:
        """The active span as a `traceparent`, None where there is none."""

    def close(self) -> None:
        """Send what is not sent yet, for a few seconds at the most."""


class _NoSpan:
    """The span of a tracer that is off."""

    traceparent: str | None = None
    trace_id: str | None = None

    def note(self, attributes: Attributes) -> None:
        """Nothing."""

    def rename(self, name: str) -> None:
        """Nothing."""

    def remark(self, text: str) -> None:
        """Nothing."""

    def fail(self, reason: str) -> None:
        """Nothing."""

    def end(self, end_time: float | None = None) -> None:
        """Nothing."""


class _NoTracer:
    """Off: its spans go nowhere."""

    enabled = False

    def begin(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        parent: str | None = None,
        role: Role = Role.PART,
        start: float | None = None,
    ) -> Span:
        """The span that holds nothing."""
        return NO_SPAN

    def active(self, span: Span) -> AbstractContextManager[None]:
        """No change."""
        return nullcontext()

    def current(self) -> str | None:
        """None."""
        return None

    def close(self) -> None:
        """Nothing."""


NO_SPAN: Span = _NoSpan()
"""The span that holds nothing."""
NO_TRACER: Tracer = _NoTracer()
"""Nobody collects."""
