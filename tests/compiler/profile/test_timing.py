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


def test_calls_that_are_longer_than_their_time_are_made_once() -> None:
    clock = Clock()
    timed = alternating({"a": clock.call(lambda: 60.0), "b": clock.call(lambda: 1.0)}, 1, clock)
    assert clock.now == 61
    assert [(each["runs"], each["median_ms"]) for each in timed.values()] == [(1, 6e4), (1, 1e3)]
    assert not timed["a"]["stable"]


def test_rounds_of_long_calls_go_on_while_they_end_in_time() -> None:
    clock = Clock()
    timed = alternating({"a": clock.call(lambda: 2.0)}, 5, clock)["a"]
    assert (clock.now, timed["runs"], timed["rounds"]) == (4, 2, 2)


def test_calls_that_were_made_before_are_not_made_again_to_be_timed() -> None:
    clock = Clock()
    timed = alternating({"a": clock.call(lambda: 60.0)}, 1, clock, first={"a": 59.0})["a"]
    assert (clock.now, timed["median_ms"]) == (0, 59e3)


def test_short_calls_fill_a_round() -> None:
    clock = Clock()
    timed = alternating({"a": clock.call(lambda: 1e-5)}, 1, clock)["a"]
    assert timed["runs"] == 3 * 20
