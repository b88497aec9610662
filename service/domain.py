"""Jobs, builds and events: the service's model of work, free of storage and transport."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any

from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from service.identity import DEFAULT


class Kind(StrEnum):
    """The kind of work that a job asks for."""

    COMPILE = "compile"
    INSPECT = "inspect"


class EventType(StrEnum):
    """The kinds of events of a job.

    BUILD_QUEUED: a build went back to the queue or began to wait for an equal one; `data.reason`
    is the cause.
    BUILD_STARTED: `data.worker`, `attempt`, `action_key`, and `expected_seconds`, which the last
    build of its model took, where there was one.
    BUILD_STAGE: `data.stage`, and `data.message` where the stage reports its step, with `done` of
    `total` parts and `seconds_left` where it has some.
    BUILD_LOG: `data.line`. BUILD_FINISHED: `data.state`, `cached`, `artifact`, `error`.
    JOB_FINISHED: `data.state`.
    """

    JOB_QUEUED = "job.queued"
    BUILD_QUEUED = "build.queued"
    BUILD_STARTED = "build.started"
    BUILD_STAGE = "build.stage"
    BUILD_LOG = "build.log"
    BUILD_FINISHED = "build.finished"
    JOB_FINISHED = "job.finished"


@dataclass(frozen=True)
class Artifact:
    """A published bundle: the digest of its OCI manifest, its reference, and its size in bytes, all
    layers together.
    """

    digest: str
    ref: str
    size: int

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {"digest": self.digest, "ref": self.ref, "size": self.size}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a build: SUCCEEDED with an artifact (compile) or a report (inspect), or
    another terminal state with an error.
    """

    state: State
    cached: bool = False
    artifact: Artifact | None = None
    report: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None
    numerics: dict[str, Any] | None = None
    error: Failure | None = None


@dataclass(frozen=True)
class Build:
    """One target's part of a job.

    capability: the name that a worker must offer to take it.
    action_key: digest of the key, once a worker has resolved the target; of a tenant that shares no
    cache, with the tenant's name. note: why a queued build
    does not run, else None.
    waiting_on: id of the equal build whose result this one waits for. attempts: workers that have
    taken it. position: the place of a queued build among its tenant's that the same workers take.
    fence: rises with every claim; a worker's word counts only while it holds the newest. report:
    what inspection found. dump: the compiler's dump beside the artifact, where the request asks for
    one. deadline: when an attempt may begin at the latest.
    """

    id: str
    job_id: str
    target: str
    capability: str
    state: State
    created_at: datetime
    stage: Stage | None = None
    action_key: str | None = None
    cached: bool = False
    artifact: Artifact | None = None
    report: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None
    numerics: dict[str, Any] | None = None
    dump: Artifact | None = None
    error: Failure | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0
    fence: int = 0
    worker: str | None = None
    waiting_on: str | None = None
    cancel_requested: bool = False
    note: str | None = None
    position: int | None = None
    tenant: str = DEFAULT
    deadline: datetime | None = None


@dataclass(frozen=True)
class Job:
    """A model, what was declared about it, and one build per target in the request's order; index:
    over all bundles, at its end. index_digest: what was tagged as such last, None where an earlier
    release did. priority: which of the tenant's go first, the highest.
    """

    id: str
    kind: Kind
    state: State
    created_at: datetime
    model: str
    request: CompileRequest
    builds: tuple[Build, ...]
    model_name: str | None = None
    finished_at: datetime | None = None
    index: Artifact | None = None
    tenant: str = DEFAULT
    index_digest: str | None = None
    project: str = ""
    priority: int = 0

    @property
    def deadline(self) -> datetime | None:
        """When attempts at its builds may begin at the latest."""
        return self.builds[0].deadline


@dataclass(frozen=True)
class Event:
    """One thing that happened to a job; `seq` counts from 1 within the job without gaps; `target`
    is None for the job itself.
    """

    seq: int
    time: datetime
    type: EventType
    target: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class Mark:
    """How far a job is: its state, and the `seq` of its last event."""

    state: State
    seq: int


@dataclass(frozen=True)
class Brief:
    """A job without its request and reports: how many builds are in each state, how many were
    `cached`, the targets that are built now with their stages, and the place of the first queued
    build among its tenant's.
    """

    id: str
    state: State
    name: str | None
    model: str
    created_at: datetime
    finished_at: datetime | None
    builds: Mapping[State, int]
    cached: int
    running: tuple[tuple[str, Stage | None], ...]
    position: int | None


@dataclass(frozen=True)
class Queue:
    """How many builds of a tenant run and wait, the live workers, and the place of each waiting
    job's first build.
    """

    running: int
    queued: int
    workers: int
    positions: Mapping[str, int]


@dataclass(frozen=True)
class Worker:
    """A worker process as it advertises itself.

    capabilities: the targets it compiles, and that it inspects; slots: its builds at a time.
    verifies: the targets whose builds it runs, `executed` or `emulated`. sandbox: how well it
    confines a build, `none` where it does not say. keys: what decides its action keys, and its
    public key where it signs; None where it does not say.
    """

    name: str
    hostname: str
    capabilities: tuple[str, ...]
    slots: int
    seen_at: datetime
    verifies: Mapping[str, str] = field(default_factory=dict)
    sandbox: str = "none"
    keys: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Pin:
    """A blob that stays with all that it refers to; `expires_at` is None for one without end."""

    digest: str
    who: str
    why: str
    created_at: datetime
    expires_at: datetime | None = None
    tenant: str = DEFAULT


@dataclass(frozen=True)
class ModelAlias:
    """A name for a version of a model; previous: the version that it named before, None at
    first.
    """

    alias: str
    version: int
    previous: int | None
    moved_at: datetime
    moved_by: str


@dataclass(frozen=True)
class ModelVersion:
    """A bundle or an index that a tenant registered under a name; job_id: where it was built, if
    that was said.
    """

    name: str
    version: int
    digest: str
    job_id: str | None
    submitter: str
    labels: dict[str, str]
    notes: str
    created_at: datetime


@dataclass(frozen=True)
class RegisteredModel:
    """A name of a tenant's; last_version: the number of the newest version, 0 before the first."""

    name: str
    project: str
    labels: dict[str, str]
    notes: str
    created_at: datetime
    last_version: int
    aliases: tuple[ModelAlias, ...]


class HookEvent(StrEnum):
    """Events that a webhook may be told of; PING is sent on request."""

    ALIAS_MOVED = "alias.moved"
    GATE_FAILED = "gate.failed"
    JOB_FINISHED = "job.finished"
    PING = "webhook.ping"


@dataclass(frozen=True)
class UsageRow:
    """Sums of what builds used; a part that the report is not broken down by is None."""

    tenant: str | None
    project: str | None
    target: str | None
    stage: str | None
    day: date | None
    attempts: int
    seconds: float
    cpu_seconds: float
    memory_byte_seconds: float
    stored_bytes: int


@dataclass(frozen=True)
class FailedGate:
    """A condition that a client judged, and what it measured."""

    gate: str
    result: str


@dataclass(frozen=True)
class Webhook:
    """A URL that is told of events of its tenant."""

    id: str
    url: str
    events: tuple[HookEvent, ...]
    created_at: datetime
    created_by: str


@dataclass(frozen=True)
class Delivery:
    """A message to a webhook; next_at: of the next attempt, None once it has arrived or failed for
    good; error: of the last attempt.
    """

    id: str
    event: HookEvent
    created_at: datetime
    attempts: int
    next_at: datetime | None
    delivered_at: datetime | None
    error: str | None


@dataclass(frozen=True)
class Collection:
    """The result of a garbage collection, or with `dry_run` of one that removed nothing."""

    dry_run: bool
    blobs: int
    bytes: int
    removed_blobs: int
    removed_bytes: int
    removed_records: int
    removed_tags: int
    expired_jobs: int
    expired_uploads: int
    expired_corrupt: int
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """The limits of a collection that began then, in seconds since the epoch: blobs touched at
    `before` or later stay, and so do bundles whose action record was written at `records_before`
    or later.
    """

    began_at: float
    before: float
    records_before: float


@dataclass(frozen=True)
class Claim:
    """A worker's hold on a build; what it writes is taken only while `fence` is the
    build's newest.

    action_key: the digest of the key. flight_key: what equal builds have in common that may have
    each other's results: the same within one tenant, and among tenants that share. asked_at: when
    the worker set out to take it, in seconds since the epoch.
    """

    build_id: str
    job_id: str
    fence: int
    kind: Kind
    target: str
    model: str
    model_name: str | None
    request: CompileRequest
    action_key: str
    flight_key: str
    tenant: str
    shared: bool
    asked_at: float = 0.0
    project: str = ""


def job_state(builds: Sequence[State]) -> State:
    """A job's state from its builds': one build's failure decides only once every build
    has ended.
    """
    if all(state.terminal for state in builds):
        worst: Iterable[State] = (State.FAILED, State.TIMED_OUT, State.CANCELLED)
        return next((state for state in worst if state in builds), State.SUCCEEDED)
    return State.QUEUED if all(state is State.QUEUED for state in builds) else State.RUNNING
