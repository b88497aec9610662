"""The messages between a worker and its compile process: one job in, events and one result out, as
JSON.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from compiler.isolation.level import Level
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage


@dataclass(frozen=True)
class CompileJob:
    """One build.

    model: path of the model file; request: `CompileRequest.to_json()`; target: a registry name.
    output: directory that receives the bundle, absent or empty beforehand.
    model_name: the bundle's name; samples: path of an .npz of inputs, or None.
    model_digest: `sha256:...` of the model where the caller knows it, None to have it computed.
    dump: directory that receives the module after every phase, or None; a failed build leaves it.
    reproducer: directory that receives what shows a mismatch again, or None; absent beforehand.
    kernels: folder of the kernels that earlier builds compiled, which may be absent, or None; those
    that this build compiles go to fresh_kernels, which is no None then.
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

    def to_json(self) -> dict[str, Any]:
        """The form written to the child's standard input."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class InspectJob:
    """A report on a model without compiling it; fields as in CompileJob."""

    kind: ClassVar[str] = "inspect"

    model: str
    request: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The form written to the child's standard input."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class FamiliesJob:
    """A report on the kernels of a model, which is compiled up to their loops; fields as in
    CompileJob.
    """

    kind: ClassVar[str] = "families"

    model: str
    request: dict[str, Any]
    target: str

    def to_json(self) -> dict[str, Any]:
        """The form written to the child's standard input."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Confined:
    """The first message: how well the process is confined, before it reads the model."""

    kind: ClassVar[str] = "confined"

    level: Level

    def to_json(self) -> dict[str, Any]:
        """One line of the event stream."""
        return {"kind": self.kind, "level": self.level.value}


@dataclass(frozen=True)
class StageStarted:
    """The build entered a stage."""

    kind: ClassVar[str] = "stage"

    stage: Stage

    def to_json(self) -> dict[str, Any]:
        """One line of the event stream."""
        return {"kind": self.kind, "stage": self.stage.value}


@dataclass(frozen=True)
class Log:
    """One line that the compiler or a tool printed, without its newline."""

    kind: ClassVar[str] = "log"

    line: str

    def to_json(self) -> dict[str, Any]:
        """One line of the event stream."""
        return {"kind": self.kind, "line": self.line}


@dataclass(frozen=True)
class Progress:
    """The present work of a stage, in a sentence for people."""

    kind: ClassVar[str] = "progress"

    stage: Stage
    message: str

    def to_json(self) -> dict[str, Any]:
        """One line of the event stream."""
        return {"kind": self.kind, "stage": self.stage.value, "message": self.message}


@dataclass(frozen=True)
class Failing:
    """The failure of a build whose cause is still searched for: the result if the search does not
    come to its end.
    """

    kind: ClassVar[str] = "failing"

    failure: Failure

    def to_json(self) -> dict[str, Any]:
        """One line of the event stream."""
        return {"kind": self.kind, "failure": self.failure.to_json()}


@dataclass(frozen=True)
class Succeeded:
    """The final message: the manifest's or the report's document."""

    kind: ClassVar[str] = "succeeded"

    result: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The last line of the event stream."""
        return {"kind": self.kind, "result": self.result}


@dataclass(frozen=True)
class Failed:
    """The final message of a build that failed."""

    kind: ClassVar[str] = "failed"

    failure: Failure

    def to_json(self) -> dict[str, Any]:
        """The last line of the event stream."""
        return {"kind": self.kind, "failure": self.failure.to_json()}


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
    match document:
        case {"kind": Confined.kind, "level": level}:
            return Confined(Level(level))
        case {"kind": StageStarted.kind, "stage": stage}:
            return StageStarted(Stage(stage))
        case {"kind": Log.kind, "line": line}:
            return Log(line)
        case {"kind": Progress.kind, "stage": stage, "message": message}:
            return Progress(Stage(stage), message)
        case {"kind": Failing.kind, "failure": failure}:
            return Failing(Failure.from_json(failure))
        case {"kind": Succeeded.kind, "result": result}:
            return Succeeded(result)
        case {"kind": Failed.kind, "failure": failure}:
            return Failed(Failure.from_json(failure))
    raise ValueError(f"not a message of a compile process: {document!r}")
