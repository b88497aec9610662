"""The differences of two builds, in one document: `relaxd diff --json`."""

from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "relaxd.diff/v1"


@dataclass(frozen=True)
class Change:
    """A named thing in both builds; None where one lacks it."""

    name: str
    base: Any = None
    head: Any = None


@dataclass(frozen=True)
class LatencyChange:
    """Both builds at one point, their calls taking turns on one machine.

    ratio: head's time by base's, 1.05 for 5 % slower; low, high: between which it lies with the
    stated confidence.
    """

    dims: dict[str, int]
    base_ms: float
    head_ms: float
    ratio: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class OutputChange:
    """One output of both builds on the same inputs; cosine is 1 for equal directions, agreement the
    part of rows whose greatest element is the same (None without rows).
    """

    name: str
    dims: dict[str, int]
    max_abs: float
    mean_abs: float
    cosine: float
    argmax_agreement: float | None = None


@dataclass(frozen=True)
class GateResult:
    """A condition that must not hold; `said` is the measured value."""

    gate: str
    failed: bool
    said: str


@dataclass(frozen=True)
class BuildDiff:
    """sizes: bytes; slower: kernels whose share of time grew, in milliseconds of the profiles;
    not_run: why neither latency nor outputs were compared, None where they were.
    """

    base: str
    head: str
    schema: str = SCHEMA
    confidence: float = 0.0
    sizes: tuple[Change, ...] = ()
    kernels: tuple[Change, ...] = ()
    slower: tuple[Change, ...] = ()
    nodes: tuple[Change, ...] = ()
    dims: tuple[Change, ...] = ()
    options: tuple[Change, ...] = ()
    toolchain: tuple[Change, ...] = ()
    latency: tuple[LatencyChange, ...] = ()
    outputs: tuple[OutputChange, ...] = ()
    not_run: str | None = None
    gates: tuple[GateResult, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return asdict(self)

    @property
    def failed(self) -> bool:
        """True if a gate failed."""
        return any(gate.failed for gate in self.gates)
