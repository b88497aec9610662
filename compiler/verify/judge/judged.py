"""Judges outputs at points by their references, and sums up all points as numerics.json has
them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from compiler.errors import VerifyError
from compiler.isolation.step import Record
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.judge.evidence import Evidence, Finding, compare_groups, judge_beside
from compiler.verify.judge.tolerance import (
    Difference,
    Spread,
    Tolerance,
    compare,
    missing,
    tolerance_of,
)
from relaxd.contract.bundle.numerics import AGREED, Verdict
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.contract.options import CompileOptions
from relaxd.loader.tensors.element_types import dtype_of

SIDES = ("library", "reference")
"""Of a trial, what is judged and by what."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Judged:
    """One output at one point.

    spread: of the reference there, or over all points where it has few values there. why: what
    evidence shows, in a half sentence; measures: the same in numbers.
    """

    output: TensorSpec
    trial: Trial
    tolerance: Tolerance
    difference: Difference
    verdict: Verdict
    spread: Spread = field(default_factory=Spread)
    why: str = ""
    measures: Record = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Tell whether no evidence could change the verdict."""
        return self.verdict in AGREED or self.difference.structural

    def to_json(self) -> Record:
        """A `relaxd.contract.bundle.report.ComparedPoint`."""
        return {
            **self.trial.point.to_json(),
            "verdict": self.verdict.value,
            "max_abs": self.difference.max_abs,
            "max_rel": self.difference.max_rel,
            "of_tolerance": self.difference.of_tolerance,
        }


def judge_all(
    trials: Sequence[Trial], signature: Signature, options: CompileOptions
) -> list[Judged]:
    """Every output at every trial by the reference alone; raises VerifyError where that lacks
    one.
    """
    judged: list[Judged] = []
    for trial in trials:
        got, want = _outputs(trial, signature)
        judged += (
            _judge(trial, output, got, want, signature, options) for output in signature.outputs
        )

    @cache
    def joint(output: TensorSpec) -> Spread:
        wanted = (array_file.read(trial.outputs("reference"), [output.name]) for trial in trials)
        return Spread.of(*(_narrowed(arrays[output.name], output) for arrays in wanted))

    return [
        _judge_by_all(item, joint(item.output), signature, options) if _is_small(item) else item
        for item in judged
    ]


def judge_again(
    judged: Sequence[Judged],
    evidence: Callable[[Trial, str], Evidence],
    trials: Sequence[Trial] | None = None,
) -> list[Judged]:
    """The same, with outputs that are not settled judged by the evidence; trials: those for which
    it is new, None for all.
    """
    fresh = {trial.index for trial in trials or ()}

    def is_left(item: Judged) -> bool:
        return not item.settled and (trials is None or item.trial.index in fresh)

    return [_judge_again(item, evidence) if is_left(item) else item for item in judged]


def _judge_again(item: Judged, evidence: Callable[[Trial, str], Evidence]) -> Judged:
    name = item.output.name
    got, want = (array_file.read(item.trial.outputs(side), [name])[name] for side in SIDES)
    want = _narrowed(want, item.output)
    finding: Finding = judge_beside(
        got, want, evidence(item.trial, name), item.tolerance, item.spread
    )
    return replace(
        item,
        tolerance=replace(item.tolerance, slack=finding.slack),
        difference=finding.difference,
        verdict=finding.verdict,
        why=finding.why,
        measures=finding.measures,
    )


def _outputs(trial: Trial, signature: Signature) -> tuple[Arrays, Arrays]:
    got, want = (array_file.read(trial.outputs(side)) for side in SIDES)
    for output in signature.outputs:
        if output.name not in want:
            raise VerifyError(
                f"the reference gives no output {output.name!r}",
                reason="missing_output",
                output=output.name,
            )
    return got, want


def _judge(
    trial: Trial,
    output: TensorSpec,
    outputs: Arrays,
    wanted: Arrays,
    signature: Signature,
    options: CompileOptions,
    others: Spread | None = None,
) -> Judged:
    """others: the spread over all points, in place of that at this one."""
    want = _narrowed(wanted[output.name], output)
    own = _tolerance(output, signature, options)
    spread = others or Spread.of(want)
    tolerance = spread.limit_to_scale(own) if "float" in output.dtype or own.steps else own
    if output.name not in outputs:
        difference = missing("the library gives no such output")
        return Judged(output, trial, tolerance, difference, Verdict.FAILED, spread)
    got = outputs[output.name]
    want = adopt_empty_shape(want, got) if signature.stacks else want
    difference = compare(got, want, tolerance)
    difference = compare_groups(got, want, difference, strict=is_strict(options))
    verdict = Verdict.FAILED if difference.problem else Verdict.PASSED
    if difference.problem and is_strict(options) and not compare(got, want, own).problem:
        difference, verdict = compare(got, want, own), Verdict.TOLERATED
    return Judged(output, trial, tolerance, difference, verdict, spread)


def _is_small(item: Judged) -> bool:
    """Tell whether an output with a bound tolerance has too few values to tell its spread."""
    bounded = item.tolerance.most < math.inf
    return bounded and not item.spread.tells and not item.difference.structural


def _judge_by_all(
    item: Judged, joint: Spread, signature: Signature, options: CompileOptions
) -> Judged:
    """Judge by the spread over all points."""
    got, want = (array_file.read(item.trial.outputs(side), [item.output.name]) for side in SIDES)
    return _judge(item.trial, item.output, got, want, signature, options, joint)


def _tolerance(output: TensorSpec, signature: Signature, options: CompileOptions) -> Tolerance:
    return tolerance_of(output.dtype, options.atol, options.rtol, signature.quantized)


def inexactness_of(judged: Sequence[Judged], name: str) -> tuple[float, float]:
    """Return how far the reference of an output is from float64 at points where the library is
    right: at most, and in the root mean square.
    """
    measures = [
        item.measures
        for item in judged
        if item.output.name == name and item.verdict in (Verdict.PASSED, Verdict.REFERENCE_INEXACT)
    ]
    largest, square = (
        max((each.get(key) or 0.0 for each in measures), default=0.0)
        for key in ("reference_error", "reference_rms")
    )
    return largest, square


def is_strict(options: CompileOptions) -> bool:
    """Tell whether the request states tolerances of its own, to which nothing is added."""
    return options.atol is not None or options.rtol is not None


def _narrowed(want: Any, output: TensorSpec) -> Any:
    """The reference's output: it gives those of narrow types as float32."""
    return want.astype(dtype_of(output.dtype)) if output.dtype in STORAGE else want


def adopt_empty_shape(want: Any, got: Any) -> Any:
    """The reference's output; where neither has elements, with the extents of the library's."""
    empty = not want.size and not got.size and want.ndim == got.ndim
    return want.reshape(got.shape) if empty else want


def verdict_of(judged: Sequence[Judged]) -> Verdict:
    """FAILED for any fault; else of what was shown the least; INCONCLUSIVE where nothing was, and
    PASSED where there was nothing to show.
    """
    verdicts = {item.verdict for item in judged}
    if Verdict.FAILED in verdicts:
        return Verdict.FAILED
    if not verdicts:
        return Verdict.PASSED
    return next((one for one in reversed(AGREED) if one in verdicts), Verdict.INCONCLUSIVE)


def summary(judged: Sequence[Judged]) -> Record:
    """One output over all points."""
    worst = max(
        judged,
        key=lambda item: (_SEVERITY.index(item.verdict), item.difference.max_abs),
    )
    return {
        "name": worst.output.name,
        "dtype": worst.output.dtype,
        "verdict": verdict_of(judged).value,
        "problem": worst.difference.problem,
        "max_abs": max(item.difference.max_abs for item in judged),
        "max_rel": max(item.difference.max_rel for item in judged),
        "range": max(item.difference.range for item in judged),
        "spread": worst.spread.deviation,
        "worst": worst.to_json(),
        "atol": worst.tolerance.atol,
        "rtol": worst.tolerance.rtol,
        "slack": worst.tolerance.slack,
        "evidence": {"why": worst.why, **worst.measures} if worst.measures else None,
        "points": [item.to_json() for item in judged],
    }


_SEVERITY = (*AGREED, Verdict.INCONCLUSIVE, Verdict.FAILED)
