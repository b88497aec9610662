"""Requests that wait for a place, in the order of their priorities, so that none waits for ever."""

from collections.abc import Iterator

from relaxd.llm.generation import Generation

_PASSES = 8
"""How many requests go before the one that waits longest; then it is its turn."""


class Waiting:
    """Requests that wait; not for several threads at once."""

    def __init__(self) -> None:
        self._requests: list[Generation] = []
        self._passed = 0
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Generation]:
        return iter(self._requests)

    def add(self, generation: Generation) -> None:
        """Lets a request wait: a new one behind those of its priority, one that ran before where
        it was.
        """
        if generation.number is None:
            generation.number = self._arrived
            self._arrived += 1
        self._requests.append(generation)

    def next(self) -> Generation | None:
        """Whose turn it is."""
        if not self._requests:
            return None
        longest = self._longest()
        return longest if self._passed >= _PASSES else min(self._requests, key=_rank)

    def take(self) -> Generation | None:
        """Removes and returns the request whose turn it is. One that others went before as often
        as they may is `settled`.
        """
        generation = self.next()
        if generation is None:
            return None
        if generation is not self._longest():
            self._passed += 1
        else:
            generation.settled = generation.settled or self._passed >= _PASSES
            self._passed = 0
        self._requests.remove(generation)
        return generation

    def remove_cancelled(self) -> list[Generation]:
        """Removes and returns the requests that nobody wants any more."""
        left = [generation for generation in self._requests if generation.cancelled]
        self._requests = [generation for generation in self._requests if not generation.cancelled]
        return left

    def _longest(self) -> Generation:
        return min(self._requests, key=_number)


def _number(generation: Generation) -> int:
    assert generation.number is not None
    return generation.number


def _rank(generation: Generation) -> tuple[int, int]:
    return -generation.priority, _number(generation)
