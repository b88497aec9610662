"""The profile of a bundle: the document profile.json, measured on one machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from relaxd.contract.bundle.estimate import Estimate, estimate
from relaxd.contract.documents import read_json
from relaxd.contract.typed import read_typed
from relaxd.errors import BundleError

FILENAME = "profile.json"
ARTIFACT = "application/vnd.relaxd.profile.v1+json"
"""The type of an artifact that holds a profile and refers to the bundle."""
MEDIA_TYPE = "application/json"
MAX_BYTES = 4 << 20
"""Larger ones are not read: anyone may attach a profile to a bundle."""
FILES = "profile*.json"
"""What profiles are called beside a bundle's files, of which several machines may have made one."""


@dataclass(frozen=True)
class Machine:
    """Where a profile was measured; None is what the machine does not tell.

    threads: what the library computed with; load_average: of 1, 5 and 15 minutes as the profile
    began; governor: how the kernel chooses the processor's frequency; peak_gflops, peak_gb_s: the
    most that the processor computed and read in float32 with these threads.
    """

    processor: str | None = None
    cores: int | None = None
    threads: int | None = None
    load_average: tuple[float, ...] = ()
    governor: str | None = None
    peak_gflops: float | None = None
    peak_gb_s: float | None = None
    core_gflops: float | None = None


@dataclass(frozen=True)
class Latency:
    """Milliseconds of a call, over `runs` calls in `rounds` rounds.

    stable: whether the median of the last rounds no longer moved; None where it was not looked at.
    """

    median_ms: float
    min_ms: float | None = None
    p25_ms: float | None = None
    p75_ms: float | None = None
    p95_ms: float | None = None
    runs: int = 0
    rounds: int = 1
    stable: bool | None = None


@dataclass(frozen=True)
class ReferenceLatency(Latency):
    """The reference runtime's at the same point, its calls alternating with the library's."""

    engine: str = ""
    threads: int | None = None


@dataclass(frozen=True)
class TimedPoint(Latency):
    """A value for every dim, and how long a call takes there.

    flops, bytes: of all kernels together, as of `KernelTime`; gflops: per second.
    """

    label: str = ""
    dims: dict[str, int] = field(default_factory=dict)
    reference: ReferenceLatency | None = None
    flops: int | None = None
    bytes: int | None = None
    gflops: float | None = None


@dataclass(frozen=True)
class SkippedPoint:
    """A point that was not tried, and why."""

    label: str = ""
    dims: dict[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class KernelTime:
    """One kernel, or function of the virtual machine, in one run.

    share: of the time of all kernels; flops, bytes: in all its calls, operations on elements and
    bytes of arguments; gflops, gb_s: per second. bound: what of the machine limits it, `compute`,
    `memory`, or `cache` where it moved more than memory delivers; percent_of_peak: how much it uses
    of that, of `compute` in a cache. nodes: names of the model's nodes that it computes. None: not
    known.
    """

    name: str
    calls: int = 0
    ms: float = 0.0
    share: float = 0.0
    flops: int | None = None
    bytes: int | None = None
    gflops: float | None = None
    gb_s: float | None = None
    percent_of_peak: float | None = None
    bound: str | None = None
    family: str | None = None
    tile: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel in a run; start_us: microseconds after the first one's start."""

    name: str
    start_us: float = 0.0
    us: float = 0.0


@dataclass(frozen=True)
class KernelTimes:
    """The kernels of one run at a point, the longest first; timeline: its calls in order."""

    label: str = ""
    dims: dict[str, int] = field(default_factory=dict)
    rows: tuple[KernelTime, ...] = ()
    timeline: tuple[KernelCall, ...] = ()


@dataclass(frozen=True)
class CostTerm:
    """`ms` for each unit of the product of the dims, each to its power; no dims: a constant."""

    ms: float
    dims: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of a call as a sum of terms, fitted over a grid of points.

    error_median, error_max: of points that the fit did not see, relative; low, high: the values of
    each dim between which it holds.
    """

    terms: tuple[CostTerm, ...] = ()
    points: int = 0
    error_median: float = 0.0
    error_max: float = 0.0
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """measured: false where none was taken, for `reason`; measured_at: when it began, in ISO 8601.

    digest: of the artifact that holds the profile and refers to the bundle; None for a file beside
    it.
    """

    measured: bool = False
    reason: str | None = None
    digest: str | None = None
    measured_at: str | None = None
    machine: Machine = Machine()
    load_ms: float | None = None
    peak_rss_bytes: int | None = None
    points: tuple[TimedPoint, ...] = ()
    left_out: tuple[SkippedPoint, ...] = ()
    operators: KernelTimes | None = None
    cost: CostModel | None = None

    @classmethod
    def from_json(cls, document: Any) -> "Profile":
        """From profile.json; raises BundleError for a malformed one."""
        return read_typed(cls, document, FILENAME)

    @classmethod
    def read(cls, content: bytes, digest: str | None = None) -> "Profile":
        """A profile that anyone may have attached: a malformed one measured nothing."""
        try:
            return replace(cls.from_json(read_json(content, FILENAME)), digest=digest)
        except BundleError as error:
            return cls(reason=error.message, digest=digest)

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return asdict(self)

    @property
    def favoured(self) -> TimedPoint | None:
        """The point that the request favoured, or that of its samples, or the first."""
        labels = {point.label: point for point in reversed(self.points)}
        first = self.points[0] if self.points else None
        return labels.get("opt") or labels.get("sample") or first

    def estimate(self, dims: Mapping[str, int]) -> Estimate:
        """How long a call takes at the dims, by the cost model; raises EstimateError where the
        profile cannot tell.
        """
        return estimate(self, dims)
