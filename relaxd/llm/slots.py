"""Slots of the KV cache: batch entries of one state, or a state for each sequence."""

from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import InputError
from relaxd.loader.adapters import AdapterStacks
from relaxd.loader.model import Model
from relaxd.loader.page_pool import PagePool
from relaxd.loader.paged_state import PagedState
from relaxd.loader.state import State, described_state

Logits = np.ndarray[Any, Any]
S = TypeVar("S", bound=State)


class Slots(Protocol):
    """Sequences by number, from 0 on without gaps."""

    count: int
    capacity: int
    batched: bool
    """Whether a step is one call, in which all sequences get as many tokens as the longest."""

    def length(self, slot: int) -> int:
        """The number of cached tokens of a sequence."""

    def extend(self, slot: int, tokens: list[int]) -> Logits:
        """Append tokens to one sequence; returns the logits [tokens, vocabulary], of the last token
        alone where the model computes no others.
        """

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        """Append one or several tokens to each of the first sequences; returns the logits
        [tokens, vocabulary] of each, of the last alone where the model computes no others.
        """

    def swap(self, first: int, second: int) -> None:
        """Swap the sequences of two slots."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first tokens of one slot to another."""

    def truncate(self, slot: int, length: int) -> None:
        """Remove the tokens of a sequence from `length` on."""

    def adapt(self, slot: int, adapter: int) -> None:
        """Compute a sequence's tokens from now on with the adapter of a number, 0 for none."""


class PagedSlots(Slots, Protocol):
    """Slots whose sequences are entries of states with pages."""

    def locate(self, slot: int) -> tuple[PagedState, int]:
        """The state and the entry that a slot is."""


def slots_of(
    model: Model,
    count: int | None,
    capacity: int | None,
    adapters: AdapterStacks | None = None,
) -> Slots:
    """Make slots for so many sequences, by default 8 or what the model's batch admits; adapters:
    those that sequences may have.
    """
    entries = count_slots(model, count)
    if described_state(model).ragged:
        return _BatchedSlots(model.state(entries=entries, capacity=capacity, adapters=adapters))
    states = [model.state(capacity=capacity, adapters=adapters) for _ in range(entries)]
    return _SeparateSlots(states)


def paged_slots_of(
    model: Model,
    count: int,
    capacity: int | None,
    adapters: AdapterStacks | None,
    pool: PagePool,
) -> PagedSlots:
    """Make slots for so many sequences, whose pages a pool has."""
    if described_state(model).ragged:
        return _BatchedSlots(PagedState(model, count, capacity, adapters, pool))
    return _SeparateSlots([PagedState(model, 1, capacity, adapters, pool) for _ in range(count)])


def count_slots(model: Model, count: int | None) -> int:
    """How many sequences run at once, by default 8 or what the model's batch admits; raises
    InputError for more than that.
    """
    described = described_state(model)
    if not described.ragged:
        return count or _DEFAULT
    cache = next(s for s in model.inputs if s.name == described.caches[0].input)
    sizes = [dim.highest for dim in model.dims if dim.name == cache.shape[0].symbol]
    most = next((size for size in sizes if size is not None), count or _DEFAULT)
    if count is not None and count > most:
        raise InputError(
            f"{count} sequences are more than the model's batch admits, {most}",
            hint="compile it with a greater batch",
        )
    return count or min(most, _DEFAULT)


def most_rows(model: Model) -> int | None:
    """The most new tokens of a sequence in one call."""
    state = model.manifest.state
    if state is not None and state.rows == "1":
        return 1
    rows = [
        dim.highest
        for dim in model.dims
        if state is not None and quote_name(dim.name) == state.rows
    ]
    return rows[0] if rows else None


def logits_of(model: Model) -> TensorSpec:
    """The output [batch, tokens, vocabulary]: that called logits, else the first."""
    output = next((spec for spec in model.outputs if spec.name == _LOGITS), model.outputs[0])
    if len(output.shape) != 3:
        raise InputError(
            f"the logits have {len(output.shape)} axes, they must be [batch, tokens, vocabulary]"
        )
    return output


def vocabulary_of(model: Model) -> int:
    """The number of the model's tokens, or the greatest of a token's type where it is open."""
    try:
        return logits_of(model).shape[2].evaluate({})
    except KeyError:
        return np.iinfo(np.int32).max


_DEFAULT = 8
_LOGITS = "logits"


class _BatchedSlots(Generic[S]):
    """Batch entries of one state, of different lengths, which one call reads."""

    batched = True

    def __init__(self, state: S) -> None:
        self._state = state
        self.count, self.capacity = len(state.lengths), state.capacity

    def locate(self, slot: int) -> tuple[S, int]:
        return self._state, slot

    def length(self, slot: int) -> int:
        return self._state.lengths[slot]

    def extend(self, slot: int, tokens: list[int]) -> Logits:
        logits: Logits = _logits(self._state.step([tokens], first=slot))[0]
        return logits

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        most = max(map(len, tokens))
        rows = [[*own, *own[-1:] * (most - len(own))] for own in tokens]
        logits = _logits(self._state.step(rows))
        for slot, own in enumerate(tokens):
            if len(own) < most:
                self.truncate(slot, self.length(slot) - most + len(own))
        return [logits[slot, : len(own)] for slot, own in enumerate(tokens)]

    def swap(self, first: int, second: int) -> None:
        self._state.swap(first, second)

    def copy(self, source: int, target: int, length: int) -> None:
        self._state.copy(source, target, length)

    def truncate(self, slot: int, length: int) -> None:
        self._state.truncate(slot, length)

    def adapt(self, slot: int, adapter: int) -> None:
        self._state.adapt(slot, adapter)


class _SeparateSlots(Generic[S]):
    """A state for each sequence, for models whose KV cache has one length: a step is a call for
    each.
    """

    batched = False

    def __init__(self, states: list[S]) -> None:
        self._states = states
        self.count, self.capacity = len(states), states[0].capacity

    def locate(self, slot: int) -> tuple[S, int]:
        return self._states[slot], 0

    def length(self, slot: int) -> int:
        return self._states[slot].lengths[0]

    def extend(self, slot: int, tokens: list[int]) -> Logits:
        logits: Logits = _logits(self._states[slot].step([tokens]))[0]
        return logits

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        return [_logits(self._states[slot].step([own]))[0] for slot, own in enumerate(tokens)]

    def swap(self, first: int, second: int) -> None:
        states = self._states
        states[first], states[second] = states[second], states[first]

    def copy(self, source: int, target: int, length: int) -> None:
        self._states[target].copy(0, 0, length, other=self._states[source])

    def truncate(self, slot: int, length: int) -> None:
        self._states[slot].truncate(0, length)

    def adapt(self, slot: int, adapter: int) -> None:
        self._states[slot].adapt(0, adapter)


def _logits(outputs: dict[str, Any]) -> Logits:
    logits: Logits = outputs.get(_LOGITS, next(iter(outputs.values())))
    if logits.ndim != 3:
        raise InputError(f"the logits have {logits.ndim} axes, must be [batch, tokens, vocabulary]")
    return logits
