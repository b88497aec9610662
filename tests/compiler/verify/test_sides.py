"""The reference's side of a verification."""

from pathlib import Path
from typing import Any

import pytest

from compiler.isolation.step import Outcome, Record
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
    name, answered, others = sides.ask_reference(reference, trials, folder, sides.Budget())
    return name, [trial.index for trial in answered], [each.reason for each in others], started


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
