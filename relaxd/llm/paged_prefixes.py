"""Prefix caching by pages: sequences that have ended stay cached without a slot, share the blocks
that they have in common, and go to the disk, or go, where memory is full.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.errors import CacheFullError
from relaxd.llm.adapters import LoadedAdapter
from relaxd.llm.prefixes import LEAST, Prefixes, common_prefix
from relaxd.llm.slots import Logits, PagedSlots
from relaxd.loader.page_pool import Block, PagePool
from relaxd.loader.paged_state import PagedState, Pages

logger = logging.getLogger(__name__)

Tokens = np.ndarray[Any, Any]
_RUNNING = sys.maxsize
"""Later than any turn."""


@dataclass(eq=False)
class _Stored:
    """A sequence without a slot. key: its adapter's; used: the turn of its last use."""

    tokens: Tokens
    key: int
    pages: Pages
    used: int

    def begins(self, tokens: Tokens, key: int) -> bool:
        """True if the tokens go on where this sequence ends, or end there too."""
        return key == self.key and np.array_equal(tokens[: len(self.tokens)], self.tokens)

    @property
    def blocks(self) -> list[Block]:
        """The extents and numbers of its blocks."""
        return [(extent, block) for block, extent in enumerate(self.pages.table)]


class PagedPrefixes(Prefixes):
    """Slots of which the first ones run, and the sequences that have ended, without slots.

    evicted, offloaded: how many sequences were dropped, or moved to the disk, for lack of memory.
    """

    def __init__(self, slots: PagedSlots, pool: PagePool, *, share: bool = True) -> None:
        super().__init__(slots, share=share)
        self._paged = slots
        self.pool = pool
        self._stored: list[_Stored] = []
        self.evicted = self.offloaded = 0

    @property
    def stored(self) -> int:
        """How many sequences are cached without a slot."""
        return len(self._stored)

    def cache_usage(self, running: int) -> float:
        """See `Prefixes.cache_usage`; blocks that several sequences share count once."""
        return len(self._running_blocks()) / self.pool.limit

    def begin(
        self,
        slot: int,
        prompt: Sequence[int],
        *,
        share: bool = True,
        adapter: LoadedAdapter | None = None,
    ) -> int:
        """See `Prefixes.begin`; raises CacheFullError where there is no memory, even if all ended
        sequences are dropped.
        """
        self._empty(slot)
        key, number = (0, 0) if adapter is None else (adapter.key, adapter.number)
        length = self._reuse(slot, prompt[:-1], key) if share and self._share else 0
        self._cached[slot] = list(prompt[:length])
        self._keys[slot] = key
        self._slots.adapt(slot, number)
        return length

    def extend(self, slot: int, tokens: list[int]) -> Logits:
        """See `Slots.extend`; raises CacheFullError."""
        self._reserve(slot, len(tokens))
        return super().extend(slot, tokens)

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        """See `Slots.step`; raises CacheFullError."""
        most = max(map(len, tokens))
        for slot, own in enumerate(tokens):
            self._reserve(slot, most if self.batched else len(own))
        return super().step(tokens)

    def truncate(self, slot: int, length: int) -> None:
        """See `Slots.truncate`; raises CacheFullError where shared blocks have to be copied."""
        self._fit(lambda: super(PagedPrefixes, self).truncate(slot, length))

    def end(self, slot: int) -> None:
        """End the sequence of a slot; its tokens stay cached until their memory is needed."""
        tokens, key = np.array(self._cached[slot]), self._keys[slot]
        self._turn += 1
        if not self._share or len(tokens) < LEAST or self._touch_equal(tokens, key):
            self._empty(slot)
            return
        state, entry = self._paged.locate(slot)
        self._cached[slot] = []
        pages = state.detach(entry)
        for stored in [each for each in self._stored if each.begins(tokens, key)]:
            self._drop(stored)
        self._stored.append(_Stored(tokens, key, pages, self._turn))

    def forget(self) -> None:
        """Empty all slots, and drop what is cached without one."""
        for slot in range(self.count):
            self._empty(slot)
        while self._stored:
            self._drop(self._stored[-1])

    def _empty(self, slot: int) -> None:
        state, entry = self._paged.locate(slot)
        self._cached[slot] = []
        self.pool.release(state.detach(entry).table)

    def _reserve(self, slot: int, count: int) -> None:
        state, entry = self._paged.locate(slot)
        tokens = min(self.length(slot) + count, self.capacity)
        self._fit(lambda: state.reserve(entry, tokens))

    def _reuse(self, slot: int, prompt: Sequence[int], key: int) -> int:
        """Fill an empty slot with the longest cached prefix of a prompt; returns its length."""
        wanted = np.asarray(prompt)
        source, length = self._longest(prompt, key)
        stored: _Stored | None = None
        for each in self._stored:
            if each.key == key and (common := common_prefix(wanted, each.tokens)) > length:
                stored, length = each, common
        if length < LEAST:
            return 0
        state, entry = self._paged.locate(slot)
        if stored is not None:
            return self._resume(state, entry, stored, length)
        origin, index = self._paged.locate(source)
        self._fit(lambda: state.copy(index, entry, length, other=origin))
        return length

    def _resume(self, state: PagedState, entry: int, stored: _Stored, length: int) -> int:
        """Fill an entry with the first tokens of a stored sequence; returns 0 where the disk has
        lost it.
        """
        self._turn += 1
        stored.used = self._turn
        continues = length == len(stored.tokens)
        try:
            if continues:
                self._fit(lambda: state.adopt(entry, stored.pages), stored)
                self._stored.remove(stored)
            else:
                self._fit(lambda: state.share(entry, stored.pages, length), stored)
        except OSError as error:
            logger.warning("cached tokens cannot be read from the disk: %s", error)
            self._drop(stored)
            return 0
        return length

    def _fit(self, allocate: Callable[[], None], wanted: _Stored | None = None) -> None:
        """Allocate blocks, and evict the sequences that were not used for longest until there are
        as many; wanted: one that stays. Raises CacheFullError where that is not enough.
        """
        while True:
            try:
                allocate()
            except CacheFullError:
                if not self._evict(wanted):
                    raise
            else:
                return

    def _evict(self, wanted: _Stored | None) -> bool:
        """Move the sequence that was not used for longest to the disk, or drop it; False where
        there is none.
        """
        victims = sorted((each for each in self._stored if each is not wanted), key=_use)
        if not victims:
            return False
        if self.pool.offloads and self._offload_oldest(victims):
            self.offloaded += 1
        else:
            self.evicted += 1
            self._drop(victims[0])
        return True

    def _offload_oldest(self, victims: Sequence[_Stored]) -> bool:
        """Move blocks that no running or more recent sequence has to the disk, of the first victim
        that has some; False where none has, or the disk has no room.
        """
        uses = {
            block: each.used for each in sorted(self._stored, key=_use) for block in each.blocks
        }
        uses |= dict.fromkeys(self._running_blocks(), _RUNNING)
        for victim in victims:
            blocks = [
                block
                for block in victim.blocks
                if uses[block] == victim.used and self.pool.is_in_memory(block)
            ]
            if blocks:
                return self._offload(blocks, [each for each in victims if each is not victim])
        return False

    def _offload(self, blocks: list[Block], others: Sequence[_Stored]) -> bool:
        on_disk = iter(
            [each for each in others if not all(map(self.pool.is_in_memory, each.blocks))]
        )
        while self.pool.on_disk + len(blocks) > self.pool.disk_limit:
            oldest = next(on_disk, None)
            if oldest is None:
                return False
            self.evicted += 1
            self._drop(oldest)
        try:
            self.pool.offload(blocks)
        except OSError as error:
            logger.warning("cached tokens cannot be written to the disk: %s", error)
            return False
        return True

    def _drop(self, stored: _Stored) -> None:
        self._stored.remove(stored)
        self.pool.release(stored.pages.table)

    def _touch_equal(self, tokens: Tokens, key: int) -> bool:
        """True if a stored sequence begins with these tokens, which counts as its use."""
        for stored in self._stored:
            if stored.key == key and np.array_equal(stored.tokens[: len(tokens)], tokens):
                stored.used = self._turn
                return True
        return False

    def _running_blocks(self) -> set[Block]:
        """The blocks of all slots; may be read from any thread."""
        states = {id(state): state for state, _ in map(self._paged.locate, range(self.count))}
        return set[Block]().union(*(state.held_blocks() for state in states.values()))


def _use(stored: _Stored) -> int:
    return stored.used
