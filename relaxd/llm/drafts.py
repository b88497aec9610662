"""Draft tokens: those that followed the same tokens before, or those of a smaller model."""

from collections.abc import Sequence
from typing import Protocol

from relaxd.llm.generation import Generation
from relaxd.llm.slots import Logits, Slots

_LENGTHS = (3, 2)
"""How many tokens have to be the same, the best first."""


class Drafter(Protocol):
    """A source of draft tokens."""

    def draft(self, generation: Generation, most: int) -> list[int]:
        """Draft at most so many tokens, or none."""

    def forget(self, generation: Generation) -> None:
        """Forget a completion that was preempted or has ended."""


class Lookup:
    """N-gram lookup: the tokens that followed the last two or three in the prompt or completion."""

    def __init__(self) -> None:
        self._seen: dict[Generation, _Seen] = {}

    def draft(self, generation: Generation, most: int) -> list[int]:
        """Copy the tokens after the latest occurrence of the last tokens."""
        seen = self._seen.get(generation)
        if seen is None:
            seen = self._seen[generation] = _Seen(generation.prompt)
        return seen.following(generation.tokens, most)

    def forget(self, generation: Generation) -> None:
        """Drop the n-grams of a completion."""
        self._seen.pop(generation, None)


class _Seen:
    """The tokens of a sequence, and the latest position of each n-gram."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._prompt = len(prompt)
        # By n-gram, the position after its latest occurrence.
        self._behind: dict[tuple[int, ...], int] = {}
        self._add(prompt)

    def following(self, answer: Sequence[int], most: int) -> list[int]:
        """The tokens after the latest occurrence of the last ones."""
        self._add(answer[len(self._tokens) - self._prompt :])
        for length in _LENGTHS:
            position = self._behind.get(tuple(self._tokens[-length:]))
            if position is not None:
                # At the end of the sequence, continue periodically, as repetitive text does.
                period = len(self._tokens) - position
                return [self._tokens[position + i % period] for i in range(most)]
        return []

    def _add(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            position = len(self._tokens)
            for length in _LENGTHS:
                if position >= length:
                    self._behind[tuple(self._tokens[-length:])] = position
            self._tokens.append(token)


class SmallModel:
    """Draft tokens of a smaller model with the same tokenizer, sampled as the completion's are.

    slots: those of the smaller model, as many as sequences run; piece: the size of a prefill chunk.
    """

    def __init__(self, slots: Slots, piece: int) -> None:
        self._slots = slots
        self._piece = piece
        self._free = list(range(slots.count))
        self._slot_of: dict[Generation, int] = {}
        self._cached: dict[Generation, list[int]] = {}

    def draft(self, generation: Generation, most: int) -> list[int]:
        """Draft tokens with the smaller model; none as long as it prefills the prompt."""
        if generation not in self._slot_of:
            self._slot_of[generation], self._cached[generation] = self._free.pop(), []
        slot, cached, sequence = (
            self._slot_of[generation],
            self._cached[generation],
            generation.sequence,
        )
        self._return(slot, cached, sequence)
        missing = sequence[len(cached) :]
        if len(sequence) + most > self._slots.capacity:
            return []
        logits = self._read(slot, cached, missing[: self._piece])
        if len(missing) > self._piece:
            return []
        ahead, draft = generation.ahead(), list[int]()
        while (token := ahead.choose(logits)) is not None:
            draft.append(token)
            if len(draft) == most:
                break
            logits = self._read(slot, cached, [token])
        return draft

    def forget(self, generation: Generation) -> None:
        """Free the slot of a completion."""
        if generation in self._slot_of:
            slot = self._slot_of.pop(generation)
            del self._cached[generation]
            self._slots.truncate(slot, 0)
            self._free.append(slot)

    def _return(self, slot: int, cached: list[int], sequence: list[int]) -> None:
        """Drop cached tokens that were rejected. The last token is computed again if need be."""
        most = min(len(cached), len(sequence) - 1)
        alike = next((i for i in range(most) if cached[i] != sequence[i]), most)
        self._slots.truncate(slot, alike)
        del cached[alike:]

    def _read(self, slot: int, cached: list[int], tokens: list[int]) -> Logits:
        logits: Logits = self._slots.extend(slot, tokens)[-1]
        cached += tokens
        return logits
