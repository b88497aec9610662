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

    def add(self, made: Generation) -> None:
        """Lets a request wait: a new one behind those of its priority, one that ran before where
        it was.
        """
        if made.number is None:
            made.number = self._arrived
            self._arrived += 1
        self._requests.append(made)

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
        made = self.next()
        if made is None:
            return None
        if made is not self._longest():
            self._passed += 1
        else:
            made.settled = made.settled or self._passed >= _PASSES
            self._passed = 0
        self._requests.remove(made)
        return made

    def remove_cancelled(self) -> list[Generation]:
        """Removes and returns the requests that nobody wants any more."""
        left = [made for made in self._requests if made.cancelled]
        self._requests = [made for made in self._requests if not made.cancelled]
        return left

    def _longest(self) -> Generation:
        return min(self._requests, key=_number)


def _number(made: Generation) -> int:
    assert made.number is not None
    return made.number


def _rank(made: Generation) -> tuple[int, int]:
    return -made.priority, _number(made)
