import random

import numpy as np
import pytest

from relaxd.loader.contest import contest, output_changes


class World:
    """Two models and neighbours that now and then take most of the processor."""

    def __init__(self, slower: float, seed: int) -> None:
        self.now = 0.0
        self._random = random.Random(seed)
        self.head = lambda: self._call(0.004 * slower)
        self.base = lambda: self._call(0.004)

    def _call(self, seconds: float) -> None:
        burst = self._random.expovariate(0.5) if self._random.random() < 0.3 else 0.0
        self.now += seconds * (1 + self._random.uniform(0, 0.02) + burst)

    def run(self):
        return contest(self.base, self.head, {}, 4.0, lambda: self.now)


@pytest.mark.parametrize("seed", range(10))
def test_busy_neighbours_raise_no_alarm_and_hide_no_slowdown(seed: int) -> None:
    assert World(1.0, seed).run().low < 1.05
    slower = World(1.1, seed).run()
    assert 1.05 < slower.low <= slower.ratio <= slower.high


def test_outputs_are_compared_by_size_direction_and_choice() -> None:
    base = {"y": np.array([[1.0, 2.0], [4.0, 3.0]])}
    head = {"y": np.array([[1.0, 2.0], [3.0, 3.5]])}
    (change,) = output_changes(base, head, {"n": 2})
    assert (change.max_abs, change.mean_abs, change.argmax_agreement) == (1.0, 0.375, 0.5)
    assert 0.97 < change.cosine < 0.99
    (same,) = output_changes(base, base, {})
    assert (same.max_abs, same.argmax_agreement) == (0.0, 1.0)
    assert same.cosine == pytest.approx(1.0)


def test_outputs_of_other_shapes_are_infinitely_far() -> None:
    (change,) = output_changes({"y": np.zeros(2)}, {"y": np.zeros(3)}, {})
    assert change.max_abs == np.inf
    assert np.isnan(change.cosine)
