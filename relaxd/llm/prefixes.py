"""Prefix caching: which tokens each slot holds, also of sequences that have ended, until another
prompt needs the slot.
"""

from collections.abc import Sequence

import numpy as np

from relaxd.llm.adapters import LoadedAdapter
from relaxd.llm.slots import Logits, Slots

LEAST = 16
"""The shortest common prefix that is shared."""


class Prefixes:
    """Slots of which the first ones run; the caller knows how many.

    share: whether prompts reuse cached tokens of others: those that were computed with the same
    adapter.
    """

    def __init__(self, slots: Slots, *, share: bool = True) -> None:
        self._slots = slots
        self._share = share
        self._cached: list[list[int]] = [[] for _ in range(slots.count)]
        self._keys = [0] * slots.count
        """The adapters that cached tokens were computed with."""
        self._used = [0] * slots.count
        self._turn = 0

    @property
    def count(self) -> int:
        """The number of slots."""
        return self._slots.count

    @property
    def batched(self) -> bool:
        """See `Slots.batched`."""
        return self._slots.batched

    @property
    def capacity(self) -> int:
        """The number of tokens that fit into a slot."""
        return self._slots.capacity

    def length(self, slot: int) -> int:
        """The number of cached tokens of a slot."""
        return len(self._cached[slot])

    def cache_usage(self, running: int) -> float:
        """The share of the KV cache that the first slots fill; may be read from any thread."""
        filled = sum(map(len, self._cached[:running]))
        return filled / (self.count * self.capacity)

    def begin(
        self,
        slot: int,
        prompt: Sequence[int],
        *,
        share: bool = True,
        adapter: LoadedAdapter | None = None,
    ) -> int:
        """Fill `slot`, the first that does not run, with the longest cached prefix of a prompt, of
        none without `share`; returns its length. The prompt's last token is left to compute.
        """
        key, number = (0, 0) if adapter is None else (adapter.key, adapter.number)
        source, length = self._longest(prompt[:-1], key) if share else (slot, 0)
        if length < LEAST:
            source, length = slot, 0
        else:
            self._touch(source)
        if source >= slot and length == len(self._cached[source]):
            # The prompt continues a sequence that has ended: nothing is overwritten.
            self.swap(source, slot)
        else:
            self._save(slot)
            self._copy(source, slot, length)
        self._keys[slot] = key
        self._slots.adapt(slot, number)
        self._touch(slot)
        return length

    def extend(self, slot: int, tokens: list[int]) -> Logits:
        """See `Slots.extend`."""
        logits = self._slots.extend(slot, tokens)
        self._cached[slot] += tokens
        return logits

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        """See `Slots.step`; where it raises, every slot holds what it held."""
        try:
            logits = self._slots.step(tokens)
        except BaseException:
            # Where each sequence is a call of its own, the first ones have taken their tokens.
            for slot, cached in enumerate(self._cached):
                self._slots.truncate(slot, len(cached))
            raise
        for cached, own in zip(self._cached, tokens, strict=False):
            cached += own
        return logits

    def truncate(self, slot: int, length: int) -> None:
        """See `Slots.truncate`."""
        if length < len(self._cached[slot]):
            self._slots.truncate(slot, length)
            del self._cached[slot][length:]

    def swap(self, first: int, second: int) -> None:
        """Swap two slots."""
        if first == second:
            return
        self._slots.swap(first, second)
        cached, used, keys = self._cached, self._used, self._keys
        cached[first], cached[second] = cached[second], cached[first]
        used[first], used[second] = used[second], used[first]
        keys[first], keys[second] = keys[second], keys[first]

    def end(self, slot: int) -> None:
        """End the sequence of a slot; its tokens stay cached until the slot is needed."""
        self._touch(slot)

    def forget(self) -> None:
        """Empty all slots."""
        for slot, cached in enumerate(self._cached):
            self._slots.truncate(slot, 0)
            cached.clear()

    def _longest(self, prompt: Sequence[int], key: int) -> tuple[int, int]:
        """The slot with the longest cached prefix of a prompt, and its length."""
        if not self._share:
            return 0, 0
        wanted = np.asarray(prompt)
        shared = [
            common_prefix(wanted, cached) if own == key else 0
            for cached, own in zip(self._cached, self._keys, strict=True)
        ]
        slot = int(np.argmax(shared))
        return slot, shared[slot]

    def _save(self, slot: int) -> None:
        """Save the tokens of `slot` to the least recently used slot before it is overwritten."""
        oldest = min(range(slot, self.count), key=self._age)
        if oldest != slot:
            self._copy(slot, oldest, len(self._cached[slot]))
            self._used[oldest] = self._used[slot]

    def _age(self, slot: int) -> tuple[bool, int]:
        """Sort key: empty slots first, then the least recently used."""
        return bool(self._cached[slot]), self._used[slot]

    def _copy(self, source: int, target: int, length: int) -> None:
        if source == target:
            self._slots.truncate(target, length)
        else:
            self._slots.copy(source, target, length)
        self._cached[target] = self._cached[source][:length]
        self._keys[target] = self._keys[source]

    def _touch(self, slot: int) -> None:
        self._turn += 1
        self._used[slot] = self._turn


def common_prefix(prompt: np.ndarray, tokens: Sequence[int] | np.ndarray) -> int:
    """The length of the common prefix of two sequences."""
    count = min(len(prompt), len(tokens))
    differ = np.flatnonzero(prompt[:count] != np.asarray(tokens[:count]))
    return int(differ[0]) if len(differ) else count
