"""At which points more evidence is asked for."""

from pathlib import Path

import pytest

from compiler.verify.inputs.inputs import Trial
from compiler.verify.inputs.points import Point
from compiler.verify.judge.judged import Judged
from compiler.verify.judge.tolerance import Difference, Tolerance
from compiler.verify.report import find_unsettled
from relaxd.contract.bundle.numerics import Verdict
from tests.support import declared

TRIALS = [Trial(n, Point(str(n), {"n": n}), Path(f"{n}.inputs.arrays"), 0) for n in range(3)]
DIFFERENCE = Difference(1.0, 1.0, "differs")


def judge_each(output: str, *verdicts: Verdict) -> list[Judged]:
    """One output at each of the trials."""
    spec = declared.spec(f"{output}=float32[n]")
    return [
        Judged(spec, trial, Tolerance(0.0, 0.0), DIFFERENCE, verdict)
        for trial, verdict in zip(TRIALS, verdicts, strict=True)
    ]


@pytest.mark.parametrize(
    ("verdicts", "asked"),
    [
        ((Verdict.PASSED, Verdict.STATISTICAL, Verdict.PASSED), []),
        ((Verdict.PASSED, Verdict.FAILED, Verdict.PASSED), [1]),
        ((Verdict.STATISTICAL, Verdict.INCONCLUSIVE, Verdict.FAILED), [2]),
        ((Verdict.INCONCLUSIVE, Verdict.FAILED, Verdict.INCONCLUSIVE), [0, 1, 2]),
    ],
)
def test_an_inconclusive_point_is_left_where_the_output_agrees_elsewhere(
    verdicts: tuple[Verdict, ...], asked: list[int]
) -> None:
    other = judge_each("z", Verdict.PASSED, Verdict.PASSED, Verdict.PASSED)
    unsettled = find_unsettled([*judge_each("y", *verdicts), *other], TRIALS)
    assert [trial.index for trial in unsettled] == asked


def test_each_output_has_to_agree_itself() -> None:
    shown = judge_each("y", Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.PASSED)
    hidden = judge_each("z", Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    unsettled = find_unsettled([*shown, *hidden], TRIALS)
    assert [trial.index for trial in unsettled] == [0, 1, 2]
