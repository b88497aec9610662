"""The loop over points: what is written, recorded and left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.verify.inputs import array_file
from compiler.verify.point_loop import Arrays, PointFailed, PointLate, run_points


def spec_of(folder: Path, *sizes: int, seconds: float = 60.0) -> dict[str, Any]:
    """A spec with a point for every size of the input x."""
    points = []
    for index, size in enumerate(sizes):
        inputs, outputs = (folder / f"{index}.{side}.arrays" for side in ("inputs", "outputs"))
        array_file.write(inputs, {"x": np.arange(size, dtype="float32")})
        files = {"inputs": str(inputs), "outputs": str(outputs)}
        points.append({"index": index, "effort": size, **files})
    return {"seconds": seconds, "points": points}


def double(inputs: Arrays) -> Arrays:
    if inputs["x"].size == 3:
        raise PointFailed("3 is too many")
    return {"y": 2 * inputs["x"]}


@pytest.mark.parametrize("key", ["failed", "refused"])
def test_a_point_that_fails_does_not_end_the_run(tmp_path: Path, key: str) -> None:
    spec, records = spec_of(tmp_path, 2, 3, 4), list[dict[str, Any]]()
    still = lambda: 0.0  # noqa: E731
    run_points(spec, records.append, double, failure=key, clock=still, timer=still)
    well = [{"index": index, "seconds": 0.0} for index in (0, 2)]
    assert records == [well[0], {"index": 1, key: "3 is too many"}, well[1]]
    written = [Path(point["outputs"]) for point in spec["points"]]
    assert [path.is_file() for path in written] == [True, False, True]
    np.testing.assert_array_equal(array_file.read(written[2])["y"], [0, 2, 4, 6])


def test_what_the_budget_has_no_room_for_is_skipped(tmp_path: Path) -> None:
    computed = iter([0.0, 0.0, 0.0, 4.0, 4.0, 4.0])
    records = list[dict[str, Any]]()
    spec = spec_of(tmp_path, 1, 2, seconds=5.0)
    run_points(spec, records.append, double, clock=lambda: next(computed))
    assert records[0].keys() == {"index", "seconds"}
    assert "about 4.0 s of processor time" in records[1]["skipped"]


def test_time_in_which_others_compute_does_not_count(tmp_path: Path) -> None:
    """Each run takes a minute on the wall of a busy machine, and computes for a second."""
    passed, computed, records = [0.0], [0.0], list[dict[str, Any]]()

    def run(inputs: Arrays) -> Arrays:
        passed[0] += 60.0
        computed[0] += 1.0
        return double(inputs)

    spec = spec_of(tmp_path, 1, 2, 4, 5, seconds=5.0)
    clocks: dict[str, Any] = {"clock": lambda: computed[0], "timer": lambda: passed[0]}
    run_points(spec, records.append, run, **clocks)
    assert records == [{"index": index, "seconds": 60.0} for index in range(4)]


def test_any_other_error_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        run_points(spec_of(tmp_path, 2), list[object]().append, lambda inputs: {"y": inputs["z"]})


def test_a_point_that_is_late_is_left_out(tmp_path: Path) -> None:
    def wait(inputs: Arrays) -> Arrays:
        if inputs["x"].size == 3:
            raise PointLate("not finished in 9 s")
        return inputs

    spec, records = spec_of(tmp_path, 2, 3), list[dict[str, Any]]()
    still = lambda: 0.0  # noqa: E731
    run_points(spec, records.append, wait, clock=still, timer=still)
    late = {"index": 1, "skipped": "not finished in 9 s"}
    assert records == [{"index": 0, "seconds": 0.0}, late]
