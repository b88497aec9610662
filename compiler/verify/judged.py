"""Judges an output at a point by its reference, and sums up all points as numerics.json has
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from compiler.errors import VerifyError
from compiler.isolation.step import Record
from compiler.verify import npz
from compiler.verify.inputs import Signature, Trial
from compiler.verify.tolerance import Difference, Tolerance, compare, tolerance_of
from relaxd.contract.options import CompileOptions
from relaxd.contract.tensors import STORAGE, TensorSpec
from relaxd.loader.narrow import dtype_of

SIDES = ("library", "reference")
"""Of a trial, what is judged and by what."""


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


def judge_all(
    trials: Sequence[Trial],
    signature: Signature,
    options: CompileOptions,
    slack: Mapping[str, float] = MappingProxyType({}),
) -> list[Judged]:
    """Every output at every trial; raises VerifyError where the reference lacks one.

    slack: by output, what is allowed beyond its tolerance.
    """
    return [item for trial in trials for item in _judge(trial, signature, options, slack)]


def _judge(
    trial: Trial, signature: Signature, options: CompileOptions, slack: Mapping[str, float]
) -> list[Judged]:
    got, want = (npz.read(trial.outputs(side)) for side in SIDES)
    judged = []
    for output in signature.outputs:
        usual = tolerance_of(output.dtype, options.atol, options.rtol, signature.quantized)
        tolerance = replace(usual, slack=slack.get(output.name, 0.0))
        if output.name not in want:
            raise VerifyError(
                f"the reference gives no output {output.name!r}",
                reason="missing_output",
                output=output.name,
            )
        wanted = _narrowed(want[output.name], output)
        if signature.stacks:
            wanted = adopt_empty_shape(wanted, got[output.name])
        difference = compare(got[output.name], wanted, tolerance)
        judged.append(Judged(output, trial, tolerance, difference))
    return judged


def _narrowed(want: Any, output: TensorSpec) -> Any:
    """The reference's output: it gives those of narrow types as float32."""
    return want.astype(dtype_of(output.dtype)) if output.dtype in STORAGE else want


def adopt_empty_shape(want: Any, got: Any) -> Any:
    """The reference's output; where neither has elements, with the extents of the library's."""
    empty = not want.size and not got.size and want.ndim == got.ndim
    return want.reshape(got.shape) if empty else want


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
        "slack": worst.tolerance.slack,
        "points": [item.to_json() for item in judged],
    }
