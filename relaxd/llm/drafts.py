"""Guesses of an answer's next tokens: what stood behind the same words before, or what a smaller
model would say.
"""

from collections.abc import Sequence
from typing import Protocol

from relaxd.llm.generation import Generation
from relaxd.llm.seats import Logits, Seats

_LENGTHS = (3, 2)
"""How many tokens have to be the same, the best first."""


class Drafter(Protocol):
    """Guesses the next tokens of answers."""

    def draft(self, made: Generation, most: int) -> list[int]:
        """At most so many tokens; none where it knows nothing."""

    def forget(self, made: Generation) -> None:
        """An answer has lost its place, or is over."""


class Lookup:
    """What stood behind the last two or three tokens before, in the prompt or the answer."""

    def __init__(self) -> None:
        self._seen: dict[Generation, _Seen] = {}

    def draft(self, made: Generation, most: int) -> list[int]:
        """What stood behind the last such place."""
        seen = self._seen.get(made)
        if seen is None:
            seen = self._seen[made] = _Seen(made.prompt)
        return seen.following(made.tokens, most)

    def forget(self, made: Generation) -> None:
        """Drops what is known of an answer."""
        self._seen.pop(made, None)


class _Seen:
    """The tokens of a sequence, and where each few of them stood last."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._prompt = len(prompt)
        # By some tokens, the place behind them.
        self._behind: dict[tuple[int, ...], int] = {}
        self._add(prompt)

    def following(self, answer: Sequence[int], most: int) -> list[int]:
        """What stood behind the last tokens of the prompt and the answer."""
        self._add(answer[len(self._tokens) - self._prompt :])
        for length in _LENGTHS:
            place = self._behind.get(tuple(self._tokens[-length:]))
            if place is not None:
                # What reaches the end goes on as it did, as in a text that repeats.
                period = len(self._tokens) - place
                return [self._tokens[place + i % period] for i in range(most)]
        return []

    def _add(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            place = len(self._tokens)
            for length in _LENGTHS:
                if place >= length:
                    self._behind[tuple(self._tokens[-length:])] = place
            self._tokens.append(token)


class SmallModel:
    """What a smaller model with the same tokens says, drawn as the answer's own tokens are.

    seats: places of the smaller model, as many as answers run; piece: tokens of a prompt at once.
    """

    def __init__(self, seats: Seats, piece: int) -> None:
        self._seats = seats
        self._piece = piece
        self._free = list(range(seats.count))
        self._places: dict[Generation, int] = {}
        self._held: dict[Generation, list[int]] = {}

    def draft(self, made: Generation, most: int) -> list[int]:
        """The tokens that the smaller model would choose; none as long as it reads the prompt."""
        if made not in self._places:
            self._places[made], self._held[made] = self._free.pop(), []
        seat, held, sequence = self._places[made], self._held[made], made.sequence
        self._return(seat, held, sequence)
        missing = sequence[len(held) :]
        if len(sequence) + most > self._seats.capacity:
            return []
        scores = self._read(seat, held, missing[: self._piece])
        if len(missing) > self._piece:
            return []
        ahead, guess = made.ahead(), list[int]()
        while (token := ahead.choose(scores)) is not None:
            guess.append(token)
            if len(guess) == most:
                break
            scores = self._read(seat, held, [token])
        return guess

    def forget(self, made: Generation) -> None:
        """Frees the place of an answer."""
        if made in self._places:
            seat = self._places.pop(made)
            del self._held[made]
            self._seats.truncate(seat, 0)
            self._free.append(seat)

    def _return(self, seat: int, held: list[int], sequence: list[int]) -> None:
        """Drops rows of guesses that were wrong. The last token is computed again if need be."""
        most = min(len(held), len(sequence) - 1)
        alike = next((i for i in range(most) if held[i] != sequence[i]), most)
        self._seats.truncate(seat, alike)
        del held[alike:]

    def _read(self, seat: int, held: list[int], tokens: list[int]) -> Logits:
        scores = self._seats.extend(seat, tokens)
        held += tokens
        return scores
