"""Counts of quick steps."""

from compiler.isolation.throttle import Throttle


def test_counts_come_once_a_second_and_the_last_one_does() -> None:
    now, counts = [0.0], list[tuple[int, int]]()
    throttle = Throttle(lambda done, total: counts.append((done, total)), lambda: now[0])
    for done in range(1, 11):
        now[0] += 0.25
        throttle(done, 10)
    assert counts == [(4, 10), (8, 10), (10, 10)]
