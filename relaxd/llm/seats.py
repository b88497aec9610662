"""Where sequences are between steps: side by side in one state, or each in a state of its own."""

from typing import Any, Protocol

import numpy as np

from relaxd.contract.names import quote_name
from relaxd.contract.tensors import TensorSpec
from relaxd.errors import InputError
from relaxd.loader.model import Model
from relaxd.loader.state import State

Logits = np.ndarray[Any, Any]


class Seats(Protocol):
    """Sequences by number, from 0 on without gaps."""

    count: int
    capacity: int
    together: bool
    """Whether a step is one call, in which all sequences get as many rows as the longest."""

    def length(self, seat: int) -> int:
        """The tokens that a sequence holds."""

    def extend(self, seat: int, tokens: list[int]) -> Logits:
        """Gives one sequence several tokens; the scores [words] behind the last."""

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        """Gives each of the first sequences one or several tokens; the scores [tokens, words] of
        each, of the last alone where the model gives no others.
        """

    def swap(self, one: int, other: int) -> None:
        """Exchanges the sequences of two places."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Makes a place hold the first tokens of another's sequence."""

    def truncate(self, seat: int, length: int) -> None:
        """Forgets a sequence's tokens from `length` on."""


def seats_of(model: Model, count: int | None, capacity: int | None) -> Seats:
    """Places for so many sequences, by default 8 or what the model's batch admits."""
    described = model.manifest.state
    if described is None:
        raise InputError(
            f"{model.manifest.name} has no state", hint="compile it with the option state=lifted"
        )
    if not described.ragged:
        return _Apart(model, count or _DEFAULT, capacity)
    cache = next(s for s in model.inputs if s.name == described.caches[0].input)
    sizes = [dim.highest for dim in model.dims if dim.name == cache.shape[0].symbol]
    most = next((size for size in sizes if size is not None), count or _DEFAULT)
    if count is not None and count > most:
        raise InputError(
            f"{count} sequences are more than the model's batch admits, {most}",
            hint="compile it with a greater batch",
        )
    return _Together(model.state(entries=count or min(most, _DEFAULT), capacity=capacity))


def most_rows(model: Model) -> int | None:
    """New tokens of a sequence that a call may have."""
    state = model.manifest.state
    if state is not None and state.rows == "1":
        return 1
    rows = [
        dim.highest
        for dim in model.dims
        if state is not None and quote_name(dim.name) == state.rows
    ]
    return rows[0] if rows else None


def scores_of(model: Model) -> TensorSpec:
    """The output [entries, tokens, words]: that called logits, else the first."""
    found = next((spec for spec in model.outputs if spec.name == _SCORES), model.outputs[0])
    if len(found.shape) != 3:
        raise InputError(
            f"the scores have {len(found.shape)} axes, they must be [batch, tokens, words]"
        )
    return found


_DEFAULT = 8
_SCORES = "logits"


class _Together:
    """Entries of one state, filled to different lengths, which one call reads."""

    together = True

    def __init__(self, state: State) -> None:
        self._state = state
        self.count, self.capacity = len(state.lengths), state.capacity

    def length(self, seat: int) -> int:
        return self._state.lengths[seat]

    def extend(self, seat: int, tokens: list[int]) -> Logits:
        scores: Logits = _scores(self._state.step([tokens], first=seat))[0, -1]
        return scores

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        most = max(map(len, tokens))
        rows = [[*own, *own[-1:] * (most - len(own))] for own in tokens]
        scores = _scores(self._state.step(rows))
        for seat, own in enumerate(tokens):
            if len(own) < most:
                self.truncate(seat, self.length(seat) - most + len(own))
        return [scores[seat, : len(own)] for seat, own in enumerate(tokens)]

    def swap(self, one: int, other: int) -> None:
        self._state.swap(one, other)

    def copy(self, source: int, target: int, length: int) -> None:
        self._state.copy(source, target, length)

    def truncate(self, seat: int, length: int) -> None:
        self._state.truncate(seat, length)


class _Apart:
    """A state for each sequence, for models whose caches keep one length: a step is a call for
    each.
    """

    together = False

    def __init__(self, model: Model, count: int, capacity: int | None) -> None:
        self._states = [model.state(capacity=capacity) for _ in range(count)]
        self.count, self.capacity = count, self._states[0].capacity

    def length(self, seat: int) -> int:
        return self._states[seat].lengths[0]

    def extend(self, seat: int, tokens: list[int]) -> Logits:
        scores: Logits = _scores(self._states[seat].step([tokens]))[0, -1]
        return scores

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        return [_scores(self._states[seat].step([own]))[0] for seat, own in enumerate(tokens)]

    def swap(self, one: int, other: int) -> None:
        states = self._states
        states[one], states[other] = states[other], states[one]

    def copy(self, source: int, target: int, length: int) -> None:
        self._states[target].copy(0, 0, length, other=self._states[source])

    def truncate(self, seat: int, length: int) -> None:
        self._states[seat].truncate(0, length)


def _scores(outputs: dict[str, Any]) -> Logits:
    found: Logits = outputs.get(_SCORES, next(iter(outputs.values())))
    if found.ndim != 3:
        raise InputError(f"the scores have {found.ndim} axes, they must be [batch, tokens, words]")
    return found
