"""States of jobs and builds, and the one table of transitions between them."""

from enum import StrEnum


class State(StrEnum):
    """The state of a job or a build."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def terminal(self) -> bool:
        """True if nothing follows this state."""
        return not TRANSITIONS[self]

    def may_become(self, following: "State") -> bool:
        """True if the table allows the transition."""
        return following in TRANSITIONS[self]


TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset(
        {State.RUNNING, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT}
    ),
    State.RUNNING: frozenset(
        {State.QUEUED, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT}
    ),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.TIMED_OUT: frozenset(),
}
"""QUEUED may end at once: answered from the cache or from the flight it waited on; RUNNING returns
to QUEUED when a lease expires.
"""


class Stage(StrEnum):
    """Stages of one build, in order."""

    LOAD = "load"
    IMPORT = "import"
    PASS = "pass"
    CODEGEN = "codegen"
    LINK = "link"
    VERIFY = "verify"
    PROFILE = "profile"
    PUBLISH = "publish"
