"""The urgency of a job: which of a tenant's builds go first, and until when they may begin."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from relaxd.errors import DeclarationError

LOWEST, HIGHEST = -10, 10
AGING_S = 6 * 3600.0
"""Seconds of waiting that a step of priority is worth: so nothing waits for ever."""
USUAL_S = 3600.0
"""A build without a deadline is ordered as if it were due after so many seconds."""
LONGEST_S = 366 * 86400.0

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)", re.ASCII)
_HINT = "as in 90, 30m, 2h or 2026-01-31T08:00:00Z"

Deadline = str | float | timedelta | datetime


@dataclass(frozen=True)
class Urgency:
    """priority: from LOWEST to HIGHEST, the highest first. deadline: when an attempt may begin at
    the latest, as seconds from the submission or a time in UTC.
    """

    priority: int = 0
    deadline: float | datetime | None = None

    @classmethod
    def of(cls, priority: int = 0, deadline: Deadline | None = None) -> "Urgency":
        """Read what a caller declares; raises DeclarationError."""
        if type(priority) is not int or not LOWEST <= priority <= HIGHEST:
            raise DeclarationError(
                f"priority must be a whole number from {LOWEST} to {HIGHEST}, not {priority!r}",
                field="priority",
                hint="0 is the default, and the highest goes first",
            )
        return cls(priority, None if deadline is None else read_deadline(deadline))

    def ends_at(self, now: float) -> float | None:
        """The deadline of a job that is submitted now, in seconds since the epoch."""
        if isinstance(self.deadline, datetime):
            return self.deadline.timestamp()
        return None if self.deadline is None else now + self.deadline

    def due_at(self, now: float) -> float:
        """By what the queued builds of a tenant are ordered: the deadline, if it is sooner than
        USUAL_S from now, less AGING_S for each step of priority.
        """
        ends = self.ends_at(now)
        usual = now + USUAL_S
        return (usual if ends is None else min(usual, ends)) - AGING_S * self.priority

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of a request, but for those with their defaults."""
        sent = {"priority": str(self.priority)} if self.priority else {}
        if isinstance(self.deadline, datetime):
            sent["deadline"] = self.deadline.isoformat()
        elif self.deadline is not None:
            sent["deadline"] = f"{self.deadline:f}"
        return sent


def read_deadline(value: Deadline) -> float | datetime:
    """Seconds from the submission, or a time in UTC; raises DeclarationError."""
    if isinstance(value, datetime):
        return _time(value, value.isoformat())
    if isinstance(value, timedelta):
        return _span(value.total_seconds())
    if isinstance(value, str):
        return _read_text(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unread(value)
    return _span(value)


def _read_text(text: str) -> float | datetime:
    if span := _SPAN.fullmatch(text):
        return _span(float(span[1]) * _SECONDS[span[2]])
    try:
        return _time(datetime.fromisoformat(text), text)
    except ValueError:
        raise _unread(text) from None


def _span(seconds: float) -> float:
    if not (math.isfinite(seconds) and 0 < seconds <= LONGEST_S):
        raise DeclarationError(
            f"a deadline is more than 0 seconds and at most a year away, not {seconds:g} s",
            field="deadline",
            hint=_HINT,
        )
    return float(seconds)


def _time(time: datetime, text: str) -> datetime:
    if time.tzinfo is None:
        raise DeclarationError(
            f"the deadline {text[:40]} has no time zone", field="deadline", hint=_HINT
        )
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise _unread(text) from None


def _unread(value: object) -> DeclarationError:
    return DeclarationError(
        f"cannot read the deadline {str(value)[:40]!r}", field="deadline", hint=_HINT
    )
