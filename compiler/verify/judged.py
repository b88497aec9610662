"""One output at one point as it was judged, and over all points as numerics.json has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from compiler.isolation.step import Record
from compiler.verify.inputs import Trial
from compiler.verify.tolerance import Difference, Tolerance
from relaxd.contract.tensors import TensorSpec


class Verdict(StrEnum):
    """What a verification came to."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Judged:
    """One output at one point."""

    output: TensorSpec
    trial: Trial
    tolerance: Tolerance
    difference: Difference

    def to_json(self) -> Record:
        """As `relaxd.contract.report.ComparedPoint`."""
        return {
            **self.trial.point.to_json(),
            "verdict": verdict_of([self]).value,
            "max_abs": self.difference.max_abs,
            "max_rel": self.difference.max_rel,
            "of_tolerance": self.difference.of_tolerance,
        }


def verdict_of(judged: Sequence[Judged]) -> Verdict:
    """FAILED for any fault; PASSED if a comparison proved something, or there was nothing to."""
    if any(item.difference.problem for item in judged):
        return Verdict.FAILED
    undecided = [item for item in judged if item.difference.undecided]
    return Verdict.INCONCLUSIVE if judged and len(undecided) == len(judged) else Verdict.PASSED


def summary(judged: Sequence[Judged]) -> Record:
    """One output over all points."""
    worst = max(
        judged, key=lambda item: (item.difference.problem is not None, item.difference.max_abs)
    )
    return {
        "name": worst.output.name,
        "dtype": worst.output.dtype,
        "verdict": verdict_of(judged).value,
        "problem": worst.difference.problem,
        "max_abs": max(item.difference.max_abs for item in judged),
        "max_rel": max(item.difference.max_rel for item in judged),
        "range": max(item.difference.range for item in judged),
        "worst": worst.to_json(),
        "atol": worst.tolerance.atol,
        "rtol": worst.tolerance.rtol,
        "points": [item.to_json() for item in judged],
    }
