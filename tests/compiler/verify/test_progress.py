"""How far a side of a verification is, as people read it."""

import pytest

from compiler.verify.progress import Follower, Step


def follow(efforts: list[int]) -> tuple[Follower, list[Step]]:
    steps = list[Step]()
    return Follower("library", dict(enumerate(efforts)), steps.append), steps


def test_points_are_counted_whatever_becomes_of_them() -> None:
    follower, steps = follow([1, 2, 3])
    follower.take([{"engine": "onnxruntime"}])
    follower.take([{"index": 0, "seconds": 1.0}, {"index": 1, "refused": "no kernel"}])
    follower.take([{"index": 2, "skipped": "it would take long"}, {"float32": []}])
    assert [(step.done, step.total) for step in steps] == [(0, 3), (0, 3), (2, 3), (3, 3)]


def test_what_remains_follows_from_how_time_grew() -> None:
    follower, steps = follow([10, 20, 100, 200])
    follower.take([{"index": 0, "seconds": 1.0}])
    assert steps[-1].seconds_left is None, "one run does not tell of larger ones"
    follower.take([{"index": 1, "seconds": 2.0}])
    assert steps[-1].seconds_left == pytest.approx(10.0 + 20.0)
    follower.take([{"index": 2, "seconds": 10.0}, {"index": 3, "seconds": 20.0}])
    assert steps[-1].seconds_left == 0.0


def test_equal_runs_take_equal_times() -> None:
    follower, steps = follow([10, 10, 10])
    follower.take([{"index": 0, "seconds": 3.0}])
    assert steps[-1].seconds_left == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("side", "text"),
    [
        ("reference", "reference at 2 of 5 shapes"),
        ("library", "library at 2 of 5 shapes"),
        ("perturbed12", "perturbed reference at 2 of 5 shapes"),
        ("nudged0", "perturbed reference at 2 of 5 shapes"),
        ("torch.export.float64", "reference in float64 at 2 of 5 shapes"),
        ("unrounded.weights", "model without quantization at 2 of 5 shapes"),
        ("shown", "reference at 2 of 5 shapes"),
    ],
)
def test_sides_have_names_for_people(side: str, text: str) -> None:
    assert Step(side, 2, 5).describe() == text
