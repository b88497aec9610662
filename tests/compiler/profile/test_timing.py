from collections.abc import Callable

from compiler.profile.timing import MOST_ROUNDS, alternating


class Clock:
    """Time that passes only in calls."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, seconds: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds()

        return run


def test_calls_take_turns_until_they_are_stable() -> None:
    clock, order = Clock(), []

    def noting(name: str, seconds: float) -> Callable[[], None]:
        return clock.call(lambda: order.append(name) or seconds)

    timed = alternating({"a": noting("a", 0.05), "b": noting("b", 0.1)}, 100, clock)
    assert order[4:] == ["a", "b"] * 3
    assert timed["a"]["median_ms"] == timed["a"]["p95_ms"] == 50
    assert (timed["b"]["rounds"], timed["b"]["stable"]) == (3, True)


def test_times_that_go_on_moving_are_said_to_be_unstable() -> None:
    clock, taken = Clock(), iter(1 + index / 4 for index in range(100))
    timed = alternating({"a": clock.call(lambda: next(taken))}, 1e6, clock)["a"]
    assert (timed["rounds"], timed["stable"]) == (MOST_ROUNDS, False)
    assert timed["min_ms"] < timed["p25_ms"] < timed["median_ms"] < timed["p75_ms"]


def test_slow_calls_are_made_three_times_beyond_their_time() -> None:
    clock = Clock()
    timed = alternating({"a": clock.call(lambda: 60.0)}, 1, clock)["a"]
    assert (timed["runs"], timed["rounds"]) == (3, 3)


def test_short_calls_fill_a_round() -> None:
    clock = Clock()
    timed = alternating({"a": clock.call(lambda: 1e-5)}, 1, clock)["a"]
    assert timed["runs"] == 3 * 20
