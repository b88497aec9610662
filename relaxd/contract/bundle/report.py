"""Everything known about one build, in one document: `GET /v1/artifacts/{digest}/report` and
`relaxd show --json`.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from relaxd.contract.bundle.profile import Profile
from relaxd.contract.bundle.report_html import report_html
from relaxd.contract.typed import read_typed

LOGITS = "logits"
"""The output of a language model that decides its next token."""

SCHEMA = "relaxd.report/v1"


@dataclass(frozen=True)
class Tensor:
    """An input or output; axes are numbers or expressions of dims, as text."""

    name: str
    dtype: str
    shape: tuple[str, ...] = ()


@dataclass(frozen=True)
class DimReport:
    """A dim's declared range, and how far it was tested.

    verified_up_to: its greatest value at which outputs were compared; measured_up_to: at which a
    profile measured; None: at none.
    """

    name: str
    min: int = 1
    max: int | None = None
    multiple: int = 1
    opt: int | None = None
    verified_up_to: int | None = None
    measured_up_to: int | None = None


@dataclass(frozen=True)
class TargetReport:
    """The target of the library; status: how it was verified (`executed`, `emulated`,
    `compiled_only`, `unverified`).
    """

    name: str
    arch: str = ""
    os: str = ""
    device: str = "cpu"
    isa: tuple[str, ...] = ()
    status: str | None = None


@dataclass(frozen=True)
class Sizes:
    """Bytes of the bundle; `runtime` is what TVM and relaxd bring."""

    total: int = 0
    library: int = 0
    weights: int = 0
    runtime: int = 0
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """Bytes that a run allocates with every dim at its maximum, with and without the memory plan;
    None where a dim has no maximum.
    """

    planned_bytes: int | None = None
    unplanned_bytes: int | None = None


@dataclass(frozen=True)
class ComparedPoint:
    """One output at one point: the largest difference from the reference, and of the tolerance how
    much of it was used (1 is its limit).
    """

    label: str = ""
    dims: dict[str, int] = field(default_factory=dict)
    verdict: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    of_tolerance: float | None = None


@dataclass(frozen=True)
class Evidence:
    """Answers of others where an output deviates from its reference, at its worst point.

    why: the conclusion, in half a sentence. samples: how many references with perturbed inputs and
    weights answered; noise, noise_rms: how far they are from the reference at most and in the root
    mean square; error_rms: how far the library is. library_error, reference_error: the distances
    from float64 at most, reference_rms: in the root mean square; None where it was not evaluated.
    correlation: of library and reference. changed,
    perturbed_changed: of integers, the share in which the library, and a perturbed reference,
    differs from the reference. argmax, perturbed_argmax: of a statistical verdict, the share of
    rows along the last axis whose greatest element is at the reference's index, in the library and
    at least in perturbed references.
    """

    why: str = ""
    samples: int = 0
    noise: float | None = None
    noise_rms: float | None = None
    error_rms: float | None = None
    library_error: float | None = None
    reference_error: float | None = None
    reference_rms: float | None = None
    correlation: float | None = None
    changed: float | None = None
    perturbed_changed: float | None = None
    argmax: float | None = None
    perturbed_argmax: float | None = None


@dataclass(frozen=True)
class OutputReport:
    """One output over all points; verdict: as `relaxd.contract.bundle.numerics.Verdict`; `range` is
    the largest value that the reference gave, `spread` the deviation of its values at the worst
    point; slack: by how much more outputs may differ there, since perturbed references do;
    evidence: None where the output agreed without.
    """

    name: str
    dtype: str = ""
    verdict: str = ""
    problem: str | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    range: float | None = None
    spread: float | None = None
    atol: float | None = None
    rtol: float | None = None
    slack: float | None = None
    evidence: Evidence | None = None
    worst: ComparedPoint | None = None
    points: tuple[ComparedPoint, ...] = ()


@dataclass(frozen=True)
class UncomparedPoint:
    """A point at which nothing was compared, and why."""

    label: str = ""
    dims: dict[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class WeightError:
    """How far an output is from that of the model's own weights.

    error: root of the mean square of the differences over that of the model's values; argmax:
    part of the rows along the last axis whose greatest element stays at its place; divergence: the
    mean of their Kullback-Leibler divergences, of probabilities or of the softmax of other numbers.
    None where it means nothing.
    """

    name: str
    error: float | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    cosine: float | None = None
    argmax: float | None = None
    divergence: float | None = None


@dataclass(frozen=True)
class AloneReport:
    """Layers that were measured together: the error if only they are quantized, None for one that
    is not finite, and whether they stay float32.
    """

    layers: tuple[str, ...]
    alone: float | None = None
    kept: bool = False


@dataclass(frozen=True)
class FallbackReport:
    """The choice of layers that stay float32: `error` of the reference with all layers quantized,
    `left` without those that stay; groups: the most sensitive layers first, none if all could be
    quantized.
    """

    error: float | None = None
    left: float | None = None
    groups: tuple[AloneReport, ...] = ()


@dataclass(frozen=True)
class SmoothQuantReport:
    """A value with SmoothQuant scales: the migration strength (0 to 1), and the error of its
    matmuls at the samples, before and after.
    """

    value: str
    strength: float = 0.0
    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True)
class StaticScaleReport:
    """A value with a static scale: (byte - zero) * step. error: that at the samples, of its
    matmuls, or of the value itself for a convolution; strength: as in SmoothQuantReport, None
    without it.
    """

    value: str
    step: float = 0.0
    zero: int = 0
    strength: float | None = None
    error: float = 0.0


@dataclass(frozen=True)
class WeightsReport:
    """The error that quantized weights, KV caches or operands cause.

    error: the greatest of all outputs; expected: that of the reference with the same quantization;
    limit: the error that the request allows, None for any; fallback: None where the request lets a
    build fail that is above it; smoothed: values with SmoothQuant scales; placed: values with
    static scales.
    """

    form: str
    error: float | None = None
    expected: float | None = None
    limit: float | None = None
    reference: str | None = None
    outputs: tuple[WeightError, ...] = ()
    fallback: FallbackReport | None = None
    smoothed: tuple[SmoothQuantReport, ...] = ()
    placed: tuple[StaticScaleReport, ...] = ()

    @property
    def logits(self) -> WeightError | None:
        """The error of a language model's logits, which decide its tokens; None without any."""
        return next((one for one in self.outputs if one.name == LOGITS), None)


@dataclass(frozen=True)
class InputsReport:
    """The distribution of random inputs where the request had no samples: noise, pages, smooth,
    tones, quiet, bright_pages or text; spread: the standard deviation of the reference's outputs,
    by distribution, of those that were tried.
    """

    distribution: str = "noise"
    spread: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgedPoint:
    """A point at which outputs were compared with the reference."""

    label: str = ""
    dims: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierReport:
    """The points at which an earlier build compared the library's code, of equal bytes; its weights
    may have been others.
    """

    points: tuple[JudgedPoint, ...] = ()
    reference: str | None = None


@dataclass(frozen=True)
class ComparedStrings:
    """How the steps on strings were compared with the reference: at so many samples, of which it
    refused others; reason: why at none.
    """

    verdict: str | None = None
    reason: str | None = None
    reference: str | None = None
    compared: int = 0
    refused: int = 0


@dataclass(frozen=True)
class NumericsReport:
    """How the build was verified; None where it has no report. float64: what evaluated the model in
    float64, or why nothing could; None where nothing had to. inputs: what they were drawn from.
    earlier: None where this build compared at all points itself. weights: None where the library
    has the model's own; precision: None where it computes in the model's; cache: None where it
    stores caches in the model's; strings: None where the model has none.
    """

    status: str | None = None
    verdict: str | None = None
    reason: str | None = None
    reference: str | None = None
    float64: str | None = None
    inputs: InputsReport | None = None
    warnings: tuple[str, ...] = ()
    outputs: tuple[OutputReport, ...] = ()
    points: tuple[JudgedPoint, ...] = ()
    left_out: tuple[UncomparedPoint, ...] = ()
    earlier: EarlierReport | None = None
    weights: WeightsReport | None = None
    precision: WeightsReport | None = None
    cache: WeightsReport | None = None
    strings: ComparedStrings | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of the library: the family that scheduled it, its tile, and the names of the model's
    nodes that it computes.

    calls: how many calls of it the model has; flops, bytes: in all of them, as expressions of the
    dims: operations on elements, a multiply-add being two, and bytes of the elements of arguments
    that are read or written, each once; computes: the dtype of most operations. None: not known.
    """

    name: str
    family: str = ""
    tile: str = ""
    nodes: tuple[str, ...] = ()
    calls: int | None = None
    flops: str | None = None
    bytes: str | None = None
    computes: str | None = None


@dataclass(frozen=True)
class StoredReport:
    """Weights that take fewer bits than in the model: `layers` of them, `bytes` in place of
    `before` as float32; kept: large ones that stay, with the reasons; calibration: what `layers`
    were rounded by; nearest: those of them whose numbers went to the nearest all the same.
    """

    form: str
    block: int
    layers: int
    bytes: int
    before: int
    kept: dict[str, str] = field(default_factory=dict)
    calibration: str = "none"
    nearest: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class QuantizedReport:
    """Quantized matmuls and convolutions: `layers` of them multiply the form, `bfloat16` of them
    bfloat16 beside int8; kept: those that multiply float32, with the reasons.
    """

    form: str
    layers: int
    kept: dict[str, str] = field(default_factory=dict)
    bfloat16: int = 0


@dataclass(frozen=True)
class StringsReport:
    """The inputs and outputs of a caller who gives strings, by steps around the library; encoded,
    decoded: inputs and outputs of the library in their place.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    encoded: tuple[str, ...] = ()
    decoded: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """digest: of the bundle, None for one that is a folder; profiles: one a machine, the newest
    last; sentences: at most three that say why it is slow, and what would help; strings: None where
    the model has none.
    """

    name: str
    target: TargetReport
    schema: str = SCHEMA
    digest: str | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    dims: tuple[DimReport, ...] = ()
    sizes: Sizes = Sizes()
    memory: Memory = Memory()
    stored: StoredReport | None = None
    narrow: QuantizedReport | None = None
    strings: StringsReport | None = None
    numerics: NumericsReport = NumericsReport()
    kernels: tuple[Kernel, ...] = ()
    profiles: tuple[Profile, ...] = ()
    sentences: tuple[str, ...] = ()
    model: str | None = None
    action_key: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    toolchain: dict[str, str] = field(default_factory=dict)
    sandbox: str | None = None

    @classmethod
    def from_json(cls, document: Any) -> "Report":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        return read_typed(cls, document, "the report")

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        return report_html(self)

    @property
    def profile(self) -> Profile | None:
        """The newest profile that was measured."""
        return next((one for one in reversed(self.profiles) if one.measured), None)
