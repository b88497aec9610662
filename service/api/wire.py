"""Documents that come and go over HTTP, and their conversion to and from the domain."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from relaxd.contract.canonical import DIGEST
from relaxd.contract.dims.grid import MOST_POINTS
from relaxd.contract.failures import Failure
from relaxd.contract.operators import MOST_OPERATORS
from relaxd.contract.options import (
    CacheForm,
    Calibration,
    Flavour,
    LogitsForm,
    Precision,
    PrecisionOver,
    StateForm,
    WeightForm,
)
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from service.domain import Build, Event, EventType, Job

Digest = Annotated[str, Field(pattern=f"^{DIGEST.pattern}$", examples=["sha256:" + "0" * 64])]

Text = Annotated[str, Field(pattern=r"^[^\u0000]*$")]
"""A text that every database takes."""

PROJECT = r"^([a-z0-9]+([._-][a-z0-9]+)*)?$"

Name = Annotated[Text, Field(max_length=255)]

Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Document(BaseModel):
    """Base of every document: no coercion, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DimIn(Document):
    """A dim takes every multiple of `multiple` from `min` to `max`; no `max` is unbounded; `opt` is
    the value to favour.
    """

    min: int = Field(1, ge=0)
    max: int | None = Field(None, ge=0)
    multiple: int = Field(1, ge=1)
    opt: int | None = Field(None, ge=0)


def _kind_of_dim(value: Any) -> str:
    return "<text>" if isinstance(value, str) else "<size>" if isinstance(value, int) else "<range>"


DimText = Annotated[Text, Field(examples=["1:64", "8:512%8@128"])]
DimValue = Annotated[
    Annotated[DimIn, Tag("<range>")]
    | Annotated[DimText, Tag("<text>")]
    | Annotated[int, Tag("<size>")],
    Discriminator(_kind_of_dim),
]

TargetName = Annotated[Text, Field(min_length=1, max_length=4096, examples=["native", "x86-64-v3"])]


GridValues = Annotated[
    list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=MOST_POINTS)
]


class ProfileIn(Document):
    """The profile to measure: `grid` is `auto`, or the values of some dims, of which every
    combination is timed; a cost model is fitted to them.
    """

    grid: Literal["auto"] | Annotated[dict[Text, GridValues], Field(min_length=1)] | None = Field(
        None, examples=["auto", {"batch": [1, 4, 16], "seq": [16, 128, 512]}]
    )


def _option(default: Any, title: str, about: str) -> Any:
    """A compile option: `title` and `about` are its label and its help on the page's form."""
    return Field(default, title=title, description=about)


Limit = Tolerance | None


class OptionsIn(Document):
    """Compile options: what to check, to measure and to keep, and the tolerances."""

    verify: bool = _option(True, "Verify", "Compare results with the reference runtime.")
    profile: bool | ProfileIn = _option(True, "Measure", "Measure latency, memory and kernels.")
    rtol: Limit = _option(None, "Relative tolerance", "By default that of the output's dtype.")
    atol: Limit = _option(None, "Absolute tolerance", "By default that of the output's dtype.")
    seed: int = _option(0, "Seed", "Of the random inputs that are verified and measured.")
    dump: bool = _option(False, "Keep the dump", "Store the module after every compiler phase.")
    flavour: Flavour | None = _option(
        None,
        "Backend",
        "`vm` needs TVM's runtime, `standalone` is a plain C library; by default the target's own.",
    )
    state: StateForm = _option(
        StateForm.PASSED,
        "KV cache",
        "`passed`: inputs and outputs of each call; `lifted`: the library updates it in place.",
    )
    cache: CacheForm = _option(
        CacheForm.FLOAT32, "Type of the cache", "What an in-place KV cache is stored in."
    )
    cache_error: Limit = _option(
        None,
        "Error limit of the cache",
        "Fail if it changes an output by more than this share, as 0.01.",
    )
    logits: LogitsForm = _option(
        LogitsForm.ALL, "Logits", "Those of `all` tokens of a call, or of the `last` one."
    )
    weights: WeightForm = _option(
        WeightForm.FLOAT32, "Weights", "The type that large weights are stored in."
    )
    weights_error: Limit = _option(
        None,
        "Error limit of weights",
        "Fail if they change an output by more than this share, as 0.05.",
    )
    calibration: Calibration = _option(
        Calibration.NONE,
        "Calibration",
        "What samples are used for: `gptq` for weights of int8 and int4, `smooth` and `static` for "
        "precision int8.",
    )
    precision: Precision = _option(
        Precision.FLOAT32, "Precision", "The type that matmuls and convolutions compute in."
    )
    precision_error: Limit = _option(
        None,
        "Error limit of precision",
        "Fail if it changes an output by more than this share, as 0.02.",
    )
    precision_over: PrecisionOver = _option(
        PrecisionOver.FAIL,
        "If the error is greater",
        "`fail`, or `keep` the most sensitive layers in float32.",
    )
    lora_rank: int = _option(
        0,
        "Rank of adapters",
        "LoRA adapters up to this rank can be loaded while the library runs; 0 for none.",
    )
    lora_targets: Text | None = _option(
        None, "Matmuls with adapters", "As in `q_proj,v_proj`; by default all of a layer's."
    )
    embed_weights: bool | None = _option(
        None,
        "Weights inside",
        "Put the weights into the library; by default where the target has no files.",
    )


class OperatorIn(Document):
    """An operator of the model that C code computes; `inputs`, `outputs` and `attributes` in the
    order in which the function takes them.
    """

    name: Text = Field(examples=["com.example::Swish"])
    function: Text = Field(examples=["swish"])
    inputs: list[Text] = Field(examples=[["x=float32[n,k]", "scale=float32[k]"]])
    outputs: list[Text] = Field(examples=[["y=float32[n,k]"]])
    attributes: list[Text] = Field(default_factory=list, examples=[["beta=float"]])
    source: Text = Field(description="The text of a C file.")
    definition: Text = Field(
        "", description="The text of an ONNX function, where the model has no function of the name."
    )


class RequestIn(Document):
    """The declarations about a model."""

    inputs: dict[Text, Text] = Field(default_factory=dict, examples=[{"ids": "int64[batch,seq]"}])
    dims: dict[Text, DimValue] = Field(
        default_factory=dict, examples=[{"batch": {"min": 1, "max": 64}, "seq": "1:512%8"}]
    )
    consts: dict[Text, bool | int | float | Text] = Field(default_factory=dict)
    shapes: dict[Text, Text | list[int | Text]] = Field(default_factory=dict)
    samples: Digest | None = None
    targets: list[TargetName] = Field(
        default_factory=lambda: ["native"], min_length=1, json_schema_extra={"uniqueItems": True}
    )
    options: OptionsIn = OptionsIn()
    operators: list[OperatorIn] = Field(default_factory=list, max_length=MOST_OPERATORS)

    def request(self) -> CompileRequest:
        """The domain's request; raises DeclarationError for what is well-formed but means
        nothing.
        """
        return CompileRequest.from_json(self.model_dump(exclude={"model"}, exclude_none=True))


class JobIn(RequestIn):
    """A request about a model that is in the store."""

    model: Digest


class BundleOut(Document):
    """A published bundle; `size` in bytes."""

    digest: str
    ref: str
    size: int


class BuildOut(Document):
    """One target's part of a job; `note` is the reason why a queued build does not run yet, and
    `position` its place among the tenant's queued builds that the same workers take.

    `status`, once built: `executed`, `emulated`, `compiled_only` or `unverified`, by the
    verification it had. `dump`, where `options.dump` asks for it: the module after every phase of
    the compiler, an artifact that refers to the bundle.
    """

    target: str
    state: State
    stage: Stage | None
    action_key: str | None
    cached: bool
    artifact: BundleOut | None
    dump: BundleOut | None
    error: Failure | None
    profile: dict[str, Any] | None
    numerics: dict[str, Any] | None
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    note: str | None
    position: int | None
    status: str | None

    @classmethod
    def of(cls, build: Build) -> "BuildOut":
        """From the domain's build."""
        return cls(
            target=build.target,
            state=build.state,
            stage=build.stage,
            action_key=build.action_key,
            cached=build.cached,
            artifact=BundleOut(**build.artifact.to_json()) if build.artifact else None,
            dump=BundleOut(**build.dump.to_json()) if build.dump else None,
            error=build.error,
            profile=build.profile,
            numerics=build.numerics,
            started_at=build.started_at,
            finished_at=build.finished_at,
            attempts=build.attempts,
            note=build.note,
            position=build.position,
            status=(build.numerics or {}).get("status"),
        )


class JobOut(Document):
    """A job and its builds, one per target in the request's order; `name` is the model's file name
    where known.

    `index`, once the job has ended, is the OCI index over the bundles of all its targets.
    `priority` orders the tenant's builds; `deadline` is when one may begin at the latest.
    """

    id: str
    state: State
    created_at: datetime
    finished_at: datetime | None
    model: str
    name: str | None
    request: dict[str, Any]
    builds: list[BuildOut]
    index: BundleOut | None
    priority: int
    deadline: datetime | None

    @classmethod
    def of(cls, job: Job) -> "JobOut":
        """From the domain's job."""
        return cls(
            id=job.id,
            state=job.state,
            created_at=job.created_at,
            finished_at=job.finished_at,
            model=job.model,
            name=job.model_name,
            request=job.request.to_json(),
            builds=[BuildOut.of(build) for build in job.builds],
            index=BundleOut(**job.index.to_json()) if job.index else None,
            priority=job.priority,
            deadline=job.deadline,
        )


class JobList(Document):
    """Jobs, the newest first."""

    jobs: list[JobOut]


OneLine = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


class FailedGateIn(Document):
    """A condition that failed, and what was measured."""

    gate: OneLine = Field(examples=["latency>5%"])
    result: OneLine = Field(examples=["+8.1% (+7.2% to +9.0%) at batch=1"])


class FailedGatesIn(Document):
    """The gates that the build for `target` failed, against the bundle `baseline` if any."""

    target: TargetName
    failed: list[FailedGateIn] = Field(min_length=1, max_length=100)
    baseline: Digest | None = None


class EventOut(Document):
    """One event of a job; `seq` counts from 1 and is the SSE id; `target` is null for the job as a
    whole.
    """

    seq: int
    time: datetime
    type: EventType
    target: str | None
    data: dict[str, Any]

    @classmethod
    def of(cls, event: Event) -> "EventOut":
        """From the domain's event."""
        return cls(
            seq=event.seq, time=event.time, type=event.type, target=event.target, data=event.data
        )


class TargetList(Document):
    """Every known target: what it is, the live workers that compile for it, and how they verify
    what they compiled.
    """

    targets: list[dict[str, Any]]


class Health(Document):
    """`status` is `ok`."""

    status: str


class ProblemOut(BaseModel):
    """An RFC 9457 problem; `type` is stable; `stage`, `node` and `op` are there where a model is at
    fault.
    """

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str | None = None
    hint: str | None = None
    field: str | None = None
    stage: str | None = None
    node: str | None = None
    op: str | None = None
