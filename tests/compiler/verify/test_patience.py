"""A reference that answers at no point in time is asked again for the cheapest points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler.verify import report
from compiler.verify.inputs.inputs import LeftOut, Trial
from compiler.verify.inputs.points import Point
from compiler.verify.sides import Answered, Budget, Reference

REFERENCE = Reference(Path("model.onnx"), {}, ("onnxruntime",))


def trials(count: int) -> list[Trial]:
    return [Trial(n, Point(f"at {n}", {"n": n}), Path(f"{n}.arrays"), n) for n in range(count)]


class Engine:
    """Answers where it is given as many seconds as `takes`; refuses otherwise for `reason`."""

    def __init__(self, takes: float, reason: str) -> None:
        self.takes, self.reason = takes, reason
        self.asked: list[tuple[int, float]] = []

    def __call__(
        self, reference: Any, asked: Sequence[Trial], folder: Path, budget: Budget, **_: Any
    ) -> Answered:
        self.asked.append((len(asked), budget.seconds))
        if budget.seconds >= self.takes:
            return Answered("an engine", list(asked), [])
        return Answered("", [], [LeftOut(trial.point, self.reason) for trial in asked])


@pytest.mark.parametrize(
    ("takes", "reason", "answered", "asked"),
    [
        (10, "late", 5, [(5, 10)]),
        (30, "it ran past 5 s", 2, [(5, 10), (2, 40)]),
        (90, "it ran past 5 s", 0, [(5, 10), (2, 40)]),
        (30, "an engine refused: no kernel", 0, [(5, 10)]),
        (30, "it hangs: 50 s passed, and it had not computed for 5", 0, [(5, 10)]),
    ],
)
def test_patience(
    takes: float,
    reason: str,
    answered: int,
    asked: list[tuple[int, float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(takes, reason)
    monkeypatch.setattr(report, "ask_reference", engine)
    points = trials(5)
    answer = report.ask_patiently(REFERENCE, points, tmp_path, Budget(seconds=10))
    assert engine.asked == asked
    assert [trial.index for trial in answer.trials] == list(range(answered))
    assert bool(answer.engine) is bool(answered)
    assert [item.point for item in answer.left_out] == [trial.point for trial in points[answered:]]
