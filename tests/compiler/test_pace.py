import numpy as np

from compiler.pace import Pace

SMALL = {"x": np.zeros(10, np.int8)}
LARGE = {"x": np.zeros(10_000, np.int8)}


def test_what_is_not_known_to_be_slow_may_start() -> None:
    assert Pace(100).objection(LARGE) is None


def test_time_grows_with_the_inputs_and_the_runs() -> None:
    pace = Pace(100)
    pace.took(SMALL, 0.05)
    assert pace.objection(LARGE) is None
    assert "250.0 s" in (pace.objection(LARGE, runs=5) or "")


def test_the_best_rate_counts() -> None:
    pace = Pace(100)
    pace.took(SMALL, 10)
    pace.took({"x": np.zeros(1000, np.int8)}, 1)
    assert pace.objection(LARGE) is None


def test_no_time_left() -> None:
    assert Pace(0).objection({}) is not None
