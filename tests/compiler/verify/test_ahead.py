"""The reference is asked while a library is compiled, and ends with the build."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler.isolation.step import TaskCancelled
from compiler.verify import ahead as module
from compiler.verify.ahead import Ahead
from compiler.verify.choosing import Choice
from compiler.verify.inputs.inputs import Trial, Trials
from compiler.verify.inputs.points import Point
from compiler.verify.progress import Step
from compiler.verify.sides import Answered, Budget, Reference

KERNELS = [{"flops": "0", "bytes": "100 * n"}]
TRIALS = Trials((Trial(0, Point("min", {"n": 1}), Path("0.arrays"), 1),), ())
REFERENCE = Reference(Path("model.onnx"), {})
STEP = Step("reference", 1, 1)


def test_the_reference_is_asked_at_the_trials_with_their_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(reference: Any, asked: Sequence[Trial], folder: Path, budget: Budget) -> Answered:
        assert (reference, folder) == (REFERENCE, tmp_path)
        return Answered("an engine", list(asked), [])

    monkeypatch.setattr(module, "ask_patiently", ask)
    with Ahead(lambda step: None) as ahead:
        ahead.draw(lambda cancelled: (Choice(), TRIALS))
        ahead.ask(lambda: (REFERENCE, ()), KERNELS, tmp_path, Budget())
        assert ahead.wait_for_inputs() == (Choice(), TRIALS)
        assert ahead.wait_for_references() == (REFERENCE, ())
        (trial,) = ahead.wait_for_answer().trials
    assert trial == TRIALS.chosen[0].add_work(KERNELS)
    assert trial.effort == 101


def test_nothing_is_asked_where_nothing_was_drawn(tmp_path: Path) -> None:
    with Ahead(lambda step: None) as ahead:
        ahead.ask(lambda: (REFERENCE, ()), KERNELS, tmp_path, Budget())
        assert ahead.wait_for_inputs() is None


def test_errors_are_raised_where_the_inputs_are_wanted(tmp_path: Path) -> None:
    def draw(cancelled: Callable[[], bool]) -> tuple[Choice, Trials]:
        raise ValueError("no such sample")

    with Ahead(lambda step: None) as ahead:
        ahead.draw(draw)
        ahead.ask(lambda: (REFERENCE, ()), KERNELS, tmp_path, Budget())
        with pytest.raises(ValueError, match="no such sample"):
            ahead.wait_for_inputs()


def test_a_build_that_ends_ends_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended: list[str] = []

    def ask(reference: Any, asked: Sequence[Trial], folder: Path, budget: Budget) -> Answered:
        while not budget.cancelled():
            time.sleep(0.01)
        ended.append("asked")
        raise TaskCancelled

    monkeypatch.setattr(module, "ask_patiently", ask)
    with Ahead(lambda step: None) as ahead:
        ahead.draw(lambda cancelled: (Choice(), TRIALS))
        ahead.ask(lambda: (REFERENCE, ()), KERNELS, tmp_path, Budget())
        assert ahead.wait_for_references()
    assert ended == ["asked"]
    assert ahead.wait_for_inputs() is None


def test_steps_are_told_once_somebody_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reported: list[Step] = []

    def ask(reference: Any, asked: Sequence[Trial], folder: Path, budget: Budget) -> Answered:
        while not reported:
            budget.on_step(STEP)
        return Answered("an engine", list(asked), [])

    monkeypatch.setattr(module, "ask_patiently", ask)
    with Ahead(reported.append) as ahead:
        ahead.draw(lambda cancelled: (Choice(), TRIALS))
        ahead.ask(lambda: (REFERENCE, ()), KERNELS, tmp_path, Budget())
        ahead.wait_for_references()
        assert not reported
        ahead.wait_for_answer()
    assert reported == [STEP]
