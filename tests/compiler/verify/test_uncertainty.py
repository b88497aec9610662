"""Who is asked where a library departs from its reference."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.verify import uncertainty
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import LeftOut, Trial
from compiler.verify.inputs.points import Point
from compiler.verify.quantization_changes import PRECISION
from compiler.verify.sides import Answered, Budget, Reference
from compiler.verify.uncertainty import (
    Answers,
    Quantization,
    ask_quantizing,
    evaluate,
    perturb_in_turn,
)


def trials_of(folder: Path, count: int = 3) -> list[Trial]:
    return [
        Trial(index, Point(str(index), {"n": 64}), folder / f"{index}.inputs.arrays", 0)
        for index in range(count)
    ]


def answering(
    monkeypatch: pytest.MonkeyPatch, trials: Sequence[Trial], silent: dict[str, dict[int, str]]
) -> list[tuple[str, Reference]]:
    """Sides answer all trials but those of `silent`, by side and index with the reasons."""
    asked = []

    def ask(
        reference: Reference, candidates: Sequence[Trial], folder: Path, budget: Budget, side: str
    ) -> Answered:
        asked.append((side, reference))
        reasons = silent.get(side, {})
        left_out = [
            LeftOut(each.point, reasons[each.index]) for each in candidates if each.index in reasons
        ]
        return Answered(
            f"engine of {side}",
            [each for each in candidates if each.index not in reasons],
            left_out,
        )

    monkeypatch.setattr(uncertainty, "ask_reference", ask)
    return asked


LATE, REFUSED = "the time budget of 9 s ran out", "onnxruntime refused: no"


def test_references_are_perturbed_by_several_seeds_and_before_they_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trials, model = trials_of(tmp_path), Reference(tmp_path / "model", {})
    moved = Reference(tmp_path / "moved", {})
    asked = answering(monkeypatch, trials, {"nudged0": {1: LATE}, "perturbed0": {0: REFUSED}})
    parts = [Quantization(model, PRECISION, (moved,) * 2)]
    turns = perturb_in_turn(Answers(), lambda: trials, model, parts, tmp_path, Budget())
    *_, result = turns
    assert [reference.perturbation for side, reference in asked] == [None, None, 0]
    assert [reference.model for side, reference in asked[:2]] == [moved.model] * 2
    assert result.perturbed[0] == ("nudged0", "nudged1")
    assert result.perturbed[1] == ("nudged1", "perturbed0")
    assert (result.equals, result.late) == (("nudged1",), frozenset())
    plain = answering(monkeypatch, trials, {})
    assert len([*perturb_in_turn(Answers(), lambda: trials, model, (), tmp_path, Budget())]) == 3
    assert [reference.perturbation for side, reference in plain] == [0, 1, 2]


def test_only_points_at_which_nobody_answered_in_time_are_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trials, model = trials_of(tmp_path), Reference(tmp_path / "model", {})
    sides = [f"perturbed{seed}" for seed in range(uncertainty.SAMPLES)]
    answering(monkeypatch, trials, {side: {0: LATE, 1: REFUSED} for side in sides})
    *_, result = perturb_in_turn(Answers(), lambda: trials, model, (), tmp_path, Budget())
    assert result.late == {0}


def test_references_are_perturbed_as_long_as_a_trial_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trials, model = trials_of(tmp_path), Reference(tmp_path / "model", {})
    moved = Reference(tmp_path / "moved", {})
    parts = [Quantization(model, PRECISION, (moved,) * 2)]
    asked = answering(monkeypatch, trials, {})
    left = [trials, trials[1:], []]
    turns = perturb_in_turn(Answers(), lambda: left.pop(0), model, parts, tmp_path, Budget())
    first, second = turns
    assert (first.equals, second.equals) == (("nudged0",), ("nudged0",))
    assert second.perturbed == {0: ("nudged0",), **dict.fromkeys((1, 2), ("nudged0", "nudged1"))}
    assert [side for side, _ in asked] == ["nudged0", "nudged1"]
    assert ask_quantizing(second, trials, tmp_path, Budget()) == ("nudged1",)
    answering(monkeypatch, trials, {"nudged1": {2: LATE}})
    assert ask_quantizing(second, trials, tmp_path, Budget()) == ()


def test_what_evaluated_in_float64_or_why_nothing_did_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trials, model = trials_of(tmp_path, 1), Reference(tmp_path / "model", {})
    answering(monkeypatch, trials, {"torch.float64": {0: REFUSED}})
    engines = ("float64", "float64.definition", "torch.float64")
    known = [evaluate(Answers(), trials, model, tmp_path, Budget(), engine) for engine in engines]
    assert known[0].exact == {0: ("float64",)}
    assert [each.float64 for each in known[::2]] == [
        "engine of float64",
        f"not evaluated: {REFUSED}",
    ]
    twice = evaluate(known[0], trials, model, tmp_path, Budget(), engines[1])
    assert (twice.exact, twice.float64) == ({0: engines[:2]}, "engine of float64")


def test_evidence_is_of_one_output_of_the_sides_that_answered(tmp_path: Path) -> None:
    (trial,) = trials_of(tmp_path, 1)
    arrays: dict[str, dict[str, Any]] = {
        "float64": {"y": np.ones(2), "z": np.zeros(2)},
        "perturbed0": {"y": np.full(2, 3.0)},
        "perturbed1": {"z": np.zeros(2)},
    }
    for side, outputs in arrays.items():
        array_file.write(trial.outputs(side), outputs)
    answers = Answers({0: ("float64",)}, {0: ("perturbed0", "perturbed1")})
    result = answers.evidence(trial, "y")
    assert [each.tolist() for each in (*result.exact, *result.perturbed)] == [[1, 1], [3, 3]]
    assert not answers.evidence(trials_of(tmp_path, 2)[1], "y").exact
