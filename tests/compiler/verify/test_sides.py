"""The reference's side of a verification."""

from pathlib import Path
from typing import Any

import pytest

from compiler.isolation.step import Outcome, Record, TaskLimits
from compiler.verify import sides
from compiler.verify.inputs.inputs import Trial
from compiler.verify.inputs.points import Point

POINTS = 5


def ask(
    monkeypatch: pytest.MonkeyPatch, folder: Path, crashes: dict[str, set[int]]
) -> tuple[str, list[int], list[str], list[tuple[str, int]]]:
    """The engine, the points answered, why others were not, and the processes with the number of
    their points; crashes: by engine, the points at which its process dies, -1 for its start.
    """
    started = list[tuple[str, int]]()

    def run(module: str, spec: dict[str, Any], *arguments: Any, **limits: Any) -> Outcome:
        own = crashes[spec["engine"]]
        started.append((spec["engine"], len(spec["points"])))
        records: list[Record] = [] if -1 in own else [{"engine": spec["engine"]}]
        if -1 in own:
            return Outcome(records, False, "died of SIGFPE")
        for point in spec["points"]:
            if point["index"] in own:
                return Outcome(records, False, "died of SIGFPE")
            records.append({"index": point["index"], "seconds": 0.0})
        return Outcome(records, True)

    monkeypatch.setattr(sides, "run_task", run)
    reference = sides.Reference(folder / "m.onnx", {}, tuple(crashes))
    trials = [Trial(i, Point(str(i), {}), folder / f"{i}.arrays", 1) for i in range(POINTS)]
    answer = sides.ask_reference(reference, trials, folder, sides.Budget())
    answered, reasons = [t.index for t in answer.trials], [o.reason for o in answer.left_out]
    return answer.engine, answered, reasons, started


def spend(
    monkeypatch: pytest.MonkeyPatch, folder: Path, outcomes: dict[str, Outcome]
) -> tuple[sides.Answered, dict[str, TaskLimits]]:
    """The answer of engines that end so, and the limits of each."""
    limits_of: dict[str, TaskLimits] = {}

    def run(module: str, spec: Record, records: Path, limits: TaskLimits, **_: Any) -> Outcome:
        limits_of[spec["engine"]] = limits
        return outcomes[spec["engine"]]

    monkeypatch.setattr(sides, "run_task", run)
    reference = sides.Reference(folder / "m.onnx", {}, tuple(outcomes))
    trials = [Trial(0, Point("0", {}), folder / "0.arrays", 1)]
    return sides.ask_reference(reference, trials, folder, sides.Budget(seconds=60)), limits_of


def test_an_engine_has_the_time_that_those_before_it_did_not_compute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusal = {"index": 0, "refused": "no kernel"}
    answer: Record = {"index": 0, "seconds": 300.0}
    answered, limits = spend(
        monkeypatch,
        tmp_path,
        {
            "one": Outcome([refusal], True, seconds=4.0),
            "two": Outcome([], False, "the time budget", late=True, seconds=20.0),
            "three": Outcome([{"engine": "three"}, answer], True, seconds=5.0),
        },
    )
    assert [limits[name].seconds for name in ("one", "two", "three")] == [30.0, 26.0, 6.0]
    assert limits["one"].elapsed == 300.0
    assert (answered.engine, answered.seconds) == ("three", 29.0)


@pytest.mark.parametrize(("patience", "limits"), [(None, (300.0, 30.0)), (5.0, (150.0, None))])
def test_only_a_library_that_computes_in_its_own_process_has_its_time_measured(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    patience: float | None,
    limits: tuple[float, float | None],
) -> None:
    used: list[TaskLimits] = []

    def run(module: str, spec: Record, records: Path, limits: TaskLimits, **_: Any) -> Outcome:
        used.append(limits)
        return Outcome([], True)

    monkeypatch.setattr(sides, "run_task", run)
    runner = sides.Runner(patience=patience)
    sides.run_library(tmp_path, [], tmp_path, sides.Budget(seconds=60), runner)
    assert [(one.elapsed, one.seconds) for one in used] == [limits]


def test_points_behind_a_crash_are_asked_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = ask(monkeypatch, tmp_path, {"one": {0, 3}, "other": set()})
    assert result == (
        "one",
        [1, 2, 4],
        ["died of SIGFPE"] * 2,
        [("one", 5), ("one", 4), ("one", 1)],
    )


def test_behind_an_engine_that_crashes_everywhere_the_next_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crashes = {"one": {-1}, "two": set(range(POINTS)), "three": set[int]()}
    name, answered, others, started = ask(monkeypatch, tmp_path, crashes)
    assert (name, answered, others) == ("three", list(range(POINTS)), [])
    assert started[0] == ("one", 5)
    assert started[1:6] == [("two", count) for count in (5, 4, 3, 2, 1)]
