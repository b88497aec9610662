"""The messages between a worker and its compile process: one job in, events and one result out, as
JSON.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar

from compiler.isolation.level import Level
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage


@dataclass(frozen=True)
class _Tagged:
    """The base of jobs and messages, which are told apart by their `kind`."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The form that is sent: the kind beside the fields."""
        values = {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}
        return {"kind": self.kind, **values}


def _to_json(value: Any) -> Any:
    if isinstance(value, Failure):
        return value.to_json()
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True)
class CompileJob(_Tagged):
    """One build.

    model: path of the model file; request: `CompileRequest.to_json()`; target: a registry name.
    output: directory that receives the bundle, absent or empty beforehand.
    model_name: the bundle's name; samples: path of an .npz of inputs, or None.
    model_digest: `sha256:...` of the model where the caller knows it, None to have it computed.
    dump: directory that receives the module after every phase, or None; a failed build leaves it.
    reproducer: directory that receives what shows a mismatch again, or None; absent beforehand.
    kernels: folder of the kernels that earlier builds compiled, which may be absent, or None; those
    that this build compiles go to fresh_kernels, which is no None then. verify_again: compare at
    all points, also where an earlier build judged equal code.
    """

    kind: ClassVar[str] = "compile"

    model: str
    request: dict[str, Any]
    target: str
    output: str
    model_name: str
    samples: str | None = None
    model_digest: str | None = None
    dump: str | None = None
    reproducer: str | None = None
    kernels: str | None = None
    fresh_kernels: str | None = None
    verify_again: bool = False


@dataclass(frozen=True)
class InspectJob(_Tagged):
    """A report on a model without compiling it; fields as in CompileJob."""

    kind: ClassVar[str] = "inspect"

    model: str
    request: dict[str, Any]


@dataclass(frozen=True)
class FamiliesJob(_Tagged):
    """A report on the kernels of a model, which is compiled up to their loops; fields as in
    CompileJob.
    """

    kind: ClassVar[str] = "families"

    model: str
    request: dict[str, Any]
    target: str


@dataclass(frozen=True)
class Confined(_Tagged):
    """The first message: how well the process is confined, before it reads the model."""

    kind: ClassVar[str] = "confined"

    level: Level


@dataclass(frozen=True)
class StageStarted(_Tagged):
    """The build entered a stage."""

    kind: ClassVar[str] = "stage"

    stage: Stage


@dataclass(frozen=True)
class Log(_Tagged):
    """One line that the compiler or a tool printed, without its newline."""

    kind: ClassVar[str] = "log"

    line: str


@dataclass(frozen=True)
class Progress(_Tagged):
    """The present work of a stage, in a sentence for people.

    done, total: how many parts of this work have ended, of how many; None where it has none.
    seconds_left: for about how long it will go on as the parts so far went, None where these do not
    tell.
    """

    kind: ClassVar[str] = "progress"

    stage: Stage
    message: str
    done: int | None = None
    total: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Failing(_Tagged):
    """The failure of a build whose cause is still searched for: the result if the search does not
    come to its end.
    """

    kind: ClassVar[str] = "failing"

    failure: Failure


@dataclass(frozen=True)
class Succeeded(_Tagged):
    """The final message: the manifest's or the report's document."""

    kind: ClassVar[str] = "succeeded"

    result: dict[str, Any]


@dataclass(frozen=True)
class Failed(_Tagged):
    """The final message of a build that failed."""

    kind: ClassVar[str] = "failed"

    failure: Failure


ChildJob = CompileJob | InspectJob | FamiliesJob
Event = StageStarted | Log | Progress
Message = Event | Confined | Failing | Succeeded | Failed


def job_from_json(document: dict[str, Any]) -> ChildJob:
    """Inverse of a job's `to_json`; KeyError or TypeError for a document of another kind."""
    fields = {key: value for key, value in document.items() if key != "kind"}
    kinds: dict[str, type[ChildJob]] = {
        job.kind: job for job in (CompileJob, InspectJob, FamiliesJob)
    }
    return kinds[document["kind"]](**fields)


def message_from_json(document: dict[str, Any]) -> Message:
    """Inverse of a message's `to_json`; ValueError for a document of another kind."""
    try:
        kind = _MESSAGES[document["kind"]]
        values = {field.name: document[field.name] for field in fields(kind)}
    except (KeyError, TypeError):
        raise ValueError(f"not a message of a compile process: {document!r}") from None
    return kind(**{name: _FIELDS.get(name, _same)(value) for name, value in values.items()})


def _same(value: Any) -> Any:
    return value


def _number(value: Any) -> Any:
    """A number of 0 or more, or None; ValueError for anything else."""
    if value is None or (type(value) in (int, float) and math.isfinite(value) and value >= 0):
        return value
    raise ValueError(f"not a message of a compile process: {value!r} is no count")


_MESSAGES: dict[str, type[Message]] = {
    message.kind: message
    for message in (Confined, StageStarted, Log, Progress, Failing, Succeeded, Failed)
}
_FIELDS: dict[str, Callable[[Any], Any]] = {
    "level": Level,
    "stage": Stage,
    "failure": Failure.from_json,
    "done": _number,
    "total": _number,
    "seconds_left": _number,
}
"""The fields of messages that are more than JSON."""
