"""What equal roundings come apart by, and what a library may differ by beside it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.verify import npz, spread
from compiler.verify.inputs import Signature, Trial
from compiler.verify.judged import judge_all
from compiler.verify.points import Point
from compiler.verify.sides import Budget, Reference
from compiler.verify.spread import (
    TIMES,
    Rounded,
    jostled,
    judged_without_hanging,
    nudged_sides,
    spreads,
    undecided_integers,
)
from compiler.verify.unrounded import PRECISION
from relaxd.contract.options import CompileOptions
from tests import declared

SIGNATURE = Signature((), (declared.spec("y=float32[n]"), declared.spec("i=int64[n]")), (), {})
WANT = np.linspace(-2, 2, 64, dtype=np.float32)
PLACES = np.arange(64)
SIDES = ("nudged0", "nudged1")


def trial(folder: Path, apart: float, places: np.ndarray = PLACES) -> Trial:
    """A library that is `apart` from the reference, whose nudges are 0.01 and 0.02 from it."""
    made = Trial(0, Point("one", {"n": 64}), folder / "0.inputs.npz", 0)
    moved = {"library": apart, "reference": 0.0, "nudged0": 0.01, "nudged1": -0.02}
    for side, by in moved.items():
        values = WANT.copy()
        values[5] += np.float32(by)
        held = places if side == "library" else PLACES
        npz.write(made.outputs(side), {"y": values, "i": held})
    return made


def problems(folder: Path, apart: float) -> list[str]:
    trials = [trial(folder, apart)]
    found = spreads(trials, SIGNATURE, SIDES)
    assert found["i"] == 0
    slack = {name: TIMES * by for name, by in found.items()}
    judged = judge_all(trials, SIGNATURE, CompileOptions(), slack)
    return [item.output.name for item in judged if item.difference.problem]


def test_a_library_may_be_some_times_as_far_as_the_nudged_references(tmp_path: Path) -> None:
    assert not problems(tmp_path, 0.07)
    assert problems(tmp_path, 0.09) == ["y"]


def test_without_nudges_nothing_is_allowed_beside_the_tolerance(tmp_path: Path) -> None:
    trials = [trial(tmp_path, 0.07)]
    assert spreads(trials, SIGNATURE, ())["y"] == 0
    judged = judge_all(trials, SIGNATURE, CompileOptions())
    assert judged[0].difference.problem


def test_integers_of_rounded_numbers_prove_nothing_where_they_differ(tmp_path: Path) -> None:
    moved = PLACES.copy()
    moved[3] += 9
    for places, differs in ((PLACES, False), (moved, True)):
        y, i = judge_all([trial(tmp_path, 0.0, places)], SIGNATURE, CompileOptions())
        assert undecided_integers(y) is y
        assert bool(i.difference.problem) is differs
        found = undecided_integers(i).difference
        assert found.problem is None
        assert bool(found.undecided) is differs


ROWS = 64
"""Of an output y=float32[64,4]."""


@pytest.mark.parametrize(
    ("off", "moved", "again", "passes"),
    [
        ([5], [5], 0.0, True),  # one row hangs on the last bits of the inputs
        ([5], [], 0.0, False),  # it is off whatever they are
        ([5, 6], [5], 0.0, False),  # and another is
        ([5], [5], 0.001, False),  # equal inputs give other bytes
        (list(range(5)), list(range(5)), 0.0, False),  # more rows than one in sixteen
    ],
)
def test_rows_that_hang_on_last_bits_are_told_from_wrong_ones(
    off: list[int], moved: list[int], again: float, passes: bool, tmp_path: Path
) -> None:
    signature = Signature((), (declared.spec("y=float32[n,4]"),), (), {})
    one = Trial(0, Point("one", {"n": ROWS}), tmp_path / "0.inputs.npz", 0)
    npz.write(one.inputs, {"x": np.ones(3, np.float32)})
    want = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    got = want.copy()
    got[off] += np.float32(0.1)
    npz.write(one.outputs("reference"), {"y": want})
    npz.write(one.outputs("library"), {"y": got})

    def run(trials: Sequence[Trial], side: str) -> Sequence[Trial]:
        for item in trials:
            values = got + np.float32(again if side == "again" else 0.0)
            if side != "again":
                values[moved] += np.float32(0.03)
            npz.write(item.outputs(side), {"y": values})
        return trials

    before = judge_all([one], signature, CompileOptions())
    assert before[0].difference.problem
    (judged,) = judged_without_hanging(before, run)
    assert (judged.difference.problem is None) is passes
    assert judged.difference.max_abs == before[0].difference.max_abs


def test_what_not_every_nudged_reference_answers_in_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trials = [Trial(index, Point(str(index), {"n": 64}), tmp_path, 0) for index in range(3)]
    in_time = {"nudged0": trials, "nudged1": trials[:2], "nudged2": trials[1:]}
    monkeypatch.setattr(spread, "ask_reference", lambda *given: ("", in_time[given[-1]], []))
    nudged = Reference(tmp_path, {})
    rounded = Rounded(nudged, PRECISION, (nudged,) * 3)
    found = nudged_sides(trials, [rounded], tmp_path, Budget())
    assert found == (list(in_time), {1})


def test_inputs_are_moved_by_less_than_sums_differ(tmp_path: Path) -> None:
    one = trial(tmp_path, 0.0)
    given: dict[str, np.ndarray] = {
        "x": np.full(1000, 3, np.float32),
        "ids": np.arange(4),
        "empty": np.zeros((0, 2), np.float32),
    }
    npz.write(one.inputs, given)
    first, second = (jostled(one, number) for number in (0, 1))
    assert first is not None
    assert second is not None
    moved, others = npz.read(first.inputs), npz.read(second.inputs)
    assert 0 < np.abs(moved["x"] / 3 - 1).max() < 1e-5
    assert not np.array_equal(moved["x"], others["x"])
    np.testing.assert_array_equal(moved["ids"], given["ids"])
    assert first.outputs("jostled0") == one.outputs("jostled0")
    npz.write(one.inputs, {"ids": given["ids"]})
    assert jostled(one, 0) is None
