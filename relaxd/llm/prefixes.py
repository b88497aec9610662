"""Rows that one prompt computes and another takes: which tokens each place holds, also of answers
that are over, until another prompt needs the place.
"""

from collections.abc import Sequence

import numpy as np

from relaxd.llm.seats import Logits, Seats

_LEAST = 16
"""Tokens that two prompts begin with alike, below which nothing is shared."""


class Prefixes:
    """Places of which the first ones run; the caller says how many.

    share: whether prompts take rows of others.
    """

    def __init__(self, seats: Seats, *, share: bool = True) -> None:
        self._seats = seats
        self._share = share
        self._held: list[list[int]] = [[] for _ in range(seats.count)]
        self._used = [0] * seats.count
        self._turn = 0

    @property
    def count(self) -> int:
        """How many places there are."""
        return self._seats.count

    @property
    def together(self) -> bool:
        """As `Seats.together`."""
        return self._seats.together

    @property
    def capacity(self) -> int:
        """Tokens that a place holds at most."""
        return self._seats.capacity

    def length(self, seat: int) -> int:
        """Tokens that a place holds."""
        return len(self._held[seat])

    def begin(self, seat: int, prompt: Sequence[int]) -> int:
        """Makes `seat`, the first place that does not run, hold the beginning of a prompt that any
        place holds; returns how many tokens. The last of the prompt is left to compute.
        """
        source, length = self._longest(prompt[:-1])
        if length < _LEAST:
            source, length = seat, 0
        else:
            self._touch(source)
        if source >= seat and length == len(self._held[source]):
            # The prompt goes on where a sequence ended, of which nothing is lost.
            self.swap(source, seat)
        else:
            self._save(seat)
            self._copy(source, seat, length)
        self._touch(seat)
        return length

    def extend(self, seat: int, tokens: list[int]) -> Logits:
        """As `Seats.extend`."""
        scores = self._seats.extend(seat, tokens)
        self._held[seat] += tokens
        return scores

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        """As `Seats.step`."""
        scores = self._seats.step(tokens)
        for held, own in zip(self._held, tokens, strict=False):
            held += own
        return scores

    def truncate(self, seat: int, length: int) -> None:
        """As `Seats.truncate`."""
        if length < len(self._held[seat]):
            self._seats.truncate(seat, length)
            del self._held[seat][length:]

    def swap(self, one: int, other: int) -> None:
        """Exchanges what two places hold."""
        if one == other:
            return
        self._seats.swap(one, other)
        held, used = self._held, self._used
        held[one], held[other] = held[other], held[one]
        used[one], used[other] = used[other], used[one]

    def ended(self, seat: int) -> None:
        """The sequence of a place is over; its rows stay until the place is needed."""
        self._touch(seat)

    def forget(self) -> None:
        """Empties all places."""
        for seat, held in enumerate(self._held):
            self._seats.truncate(seat, 0)
            held.clear()

    def _longest(self, prompt: Sequence[int]) -> tuple[int, int]:
        """The place that holds the longest beginning of a prompt, and its length."""
        if not self._share:
            return 0, 0
        wanted = np.asarray(prompt)
        shared = [_alike(wanted, held) for held in self._held]
        place = int(np.argmax(shared))
        return place, shared[place]

    def _save(self, seat: int) -> None:
        """Lets `seat` be overwritten: puts what it holds where what was used longest ago is."""
        oldest = min(range(seat, self.count), key=self._age)
        if oldest != seat:
            self._copy(seat, oldest, len(self._held[seat]))
            self._used[oldest] = self._used[seat]

    def _age(self, seat: int) -> tuple[bool, int]:
        """Sorts empty places first, then those that were used long ago."""
        return bool(self._held[seat]), self._used[seat]

    def _copy(self, source: int, target: int, length: int) -> None:
        if source == target:
            self._seats.truncate(target, length)
        else:
            self._seats.copy(source, target, length)
        self._held[target] = self._held[source][:length]

    def _touch(self, seat: int) -> None:
        self._turn += 1
        self._used[seat] = self._turn


def _alike(one: np.ndarray, other: list[int]) -> int:
    """How many tokens two sequences begin with alike."""
    count = min(len(one), len(other))
    differ = np.flatnonzero(one[:count] != np.asarray(other[:count]))
    return int(differ[0]) if len(differ) else count
