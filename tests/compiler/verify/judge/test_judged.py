"""Verdicts of outputs at points, and of all of them together."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.inputs.points import Point
from compiler.verify.judge.judged import Judged, inexactness_of, judge_all, summary, verdict_of
from compiler.verify.judge.tolerance import Difference, tolerance_of
from compiler.verify.reach import warn_unproven
from relaxd.contract.bundle.numerics import AGREED, Verdict
from relaxd.contract.bundle.report import OutputReport
from relaxd.contract.options import CompileOptions
from relaxd.contract.typed import read_typed
from tests.support import declared

Array = np.ndarray
SIGNATURE = Signature((), (declared.spec("y=float32[n]"),), (), {})


def trials_of(folder: Path, got: Sequence[Array], want: Sequence[Array]) -> list[Trial]:
    trials = []
    for index, pair in enumerate(zip(got, want, strict=True)):
        trial = Trial(index, Point(str(index), {"n": 1}), folder / f"{index}.inputs.arrays", 0)
        for side, array in zip(("library", "reference"), pair, strict=True):
            array_file.write(trial.outputs(side), {} if array is None else {"y": array})
        trials.append(trial)
    return trials


def verdicts(trials: list[Trial], atol: float | None = None) -> list[Verdict]:
    judged = judge_all(trials, SIGNATURE, CompileOptions(atol=atol))
    return [item.verdict for item in judged]


SCORES = [np.array([0.5 + 0.001 * index], np.float32) for index in range(8)]
"""One number at each point, all near to each other."""


def test_single_numbers_are_judged_by_their_spread_over_all_points(tmp_path: Path) -> None:
    assert set(verdicts(trials_of(tmp_path, SCORES, SCORES))) == {Verdict.PASSED}
    same = [SCORES[3]] * len(SCORES)
    result = verdicts(trials_of(tmp_path, same, SCORES))
    assert result.count(Verdict.FAILED) >= 6


def test_a_constant_that_agrees_passes_with_a_warning(tmp_path: Path) -> None:
    same = [np.full(40, 0.5, np.float32)] * 3
    judged = judge_all(trials_of(tmp_path, same, same), SIGNATURE, CompileOptions())
    assert verdict_of(judged) is Verdict.PASSED
    assert warn_unproven(judged) == ["output 'y' proves little: the reference is 0.5 throughout"]
    moved = [array + np.float32(0.1) for array in same]
    assert set(verdicts(trials_of(tmp_path, moved, same))) == {Verdict.FAILED}


def test_what_only_the_request_tolerates_is_named_so(tmp_path: Path) -> None:
    want = [np.random.default_rng(0).standard_normal(100).astype("float32")]
    got = [want[0] + np.float32(0.3)]
    trials = trials_of(tmp_path, got, want)
    assert verdicts(trials) == [Verdict.FAILED]
    assert verdicts(trials, atol=0.5) == [Verdict.TOLERATED]
    assert verdicts(trials, atol=0.01) == [Verdict.FAILED]


@pytest.mark.parametrize(
    ("got", "problem"),
    [
        (np.zeros((2, 1), np.float32), "shape [2, 1]"),
        (np.zeros(2, np.float64), "dtype float64"),
        (None, "the library gives no such output"),
    ],
)
def test_another_form_is_settled_at_once(got: Array | None, problem: str, tmp_path: Path) -> None:
    want = [np.zeros(2, np.float32)]
    (item,) = judge_all(trials_of(tmp_path, [got], want), SIGNATURE, CompileOptions())
    assert (item.verdict, item.settled) == (Verdict.FAILED, True)
    assert problem in str(item.difference.problem)


def judged_as(verdict: Verdict, tmp_path: Path, **measures: float) -> Judged:
    trial = Trial(0, Point("one", {"n": 1}), tmp_path, 0)
    difference = Difference(0.1, 0.1, "off" if verdict is Verdict.FAILED else None)
    tolerance = tolerance_of("float32", None, None)
    (output,) = SIGNATURE.outputs
    return Judged(output, trial, tolerance, difference, verdict, measures=measures)


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ("passed passed", "passed"),
        ("passed statistical reference_inexact", "statistical"),
        ("passed inconclusive", "passed"),
        ("inconclusive inconclusive", "inconclusive"),
        ("tolerated statistical", "tolerated"),
        ("statistical failed inconclusive", "failed"),
        ("", "passed"),
    ],
)
def test_a_build_has_the_least_that_was_shown(verdicts: str, verdict: str, tmp_path: Path) -> None:
    judged = [judged_as(Verdict(name), tmp_path) for name in verdicts.split()]
    assert verdict_of(judged) == verdict


def test_an_output_has_the_evidence_of_its_worst_point(tmp_path: Path) -> None:
    judged = [
        judged_as(Verdict.PASSED, tmp_path),
        judged_as(Verdict.STATISTICAL, tmp_path, samples=3, noise_rms=0.2, error_rms=0.1),
    ]
    result = read_typed(OutputReport, summary(judged), "output")
    assert (result.verdict, result.worst and result.worst.verdict) == ("statistical", "statistical")
    assert result.evidence is not None
    assert (result.evidence.samples, result.evidence.noise_rms) == (3, 0.2)
    assert summary(judged[:1])["evidence"] is None
    assert set(AGREED) == {
        name for name in Verdict if name not in ("inconclusive", "failed", "not_run")
    }


def test_a_reference_is_inexact_as_far_as_right_libraries_show(tmp_path: Path) -> None:
    measures = {"reference_error": 0.3, "reference_rms": 0.1}
    judged = [
        judged_as(Verdict.REFERENCE_INEXACT, tmp_path, **measures),
        judged_as(Verdict.FAILED, tmp_path, reference_error=9.0, reference_rms=9.0),
        judged_as(Verdict.PASSED, tmp_path),
    ]
    assert inexactness_of(judged, "y") == (0.3, 0.1)
    assert inexactness_of(judged, "z") == (0.0, 0.0)
