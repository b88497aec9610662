"""Whose turn it is: by priority, then by arrival, and in the end everybody's."""

from relaxd.llm import Sampling
from relaxd.llm.generation import Generation
from relaxd.llm.waiting import Waiting


def request(priority: int = 0) -> Generation:
    return Generation([1], Sampling(), None, frozenset(), priority=priority)


def waiting(*priorities: int) -> tuple[Waiting, list[Generation]]:
    queue = Waiting()
    created = [request(priority) for priority in priorities]
    for each in created:
        queue.add(each)
    return queue, created


def order(queue: Waiting) -> list[Generation]:
    results = []
    while len(queue):
        following = queue.next()
        assert queue.take() is following is not None
        results.append(following)
    return results


def test_the_greatest_priority_first_then_who_came_first() -> None:
    queue, created = waiting(0, 5, 0, -1, 5)
    assert order(queue) == [created[index] for index in (1, 4, 0, 2, 3)]
    assert queue.take() is None


def test_none_waits_for_ever() -> None:
    queue, (low,) = waiting(-9)
    for turn in range(8):
        queue.add(request(1))
        taken = queue.take()
        assert taken is not low, turn
    queue.add(request(1))
    assert queue.take() is low
    assert low.settled


def test_who_ran_before_is_in_front_of_equals() -> None:
    queue, created = waiting(0, 0, 0)
    first = queue.take()
    assert first is created[0]
    queue.add(first)
    assert order(queue) == created
    assert not any(each.settled for each in created)


def test_who_left_is_removed() -> None:
    queue, created = waiting(0, 1)
    created[1].cancel()
    assert queue.remove_cancelled() == [created[1]]
    assert order(queue) == [created[0]]
