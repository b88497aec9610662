"""KV caches in pages: the entries of a state are addresses at which the system has the pages of the
sequences that run, so libraries read and write them as they do any array.
"""

import math
import mmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relaxd.errors import CacheFullError, InputError, PagesError
from relaxd.loader.machine.addresses import address
from relaxd.loader.machine.page_files import is_available
from relaxd.loader.page_layout import CacheShape, PageLayout, aligned_capacity
from relaxd.loader.page_pool import Block, PagePool, Table
from relaxd.loader.state import Arrays, State, cache_forms, check_capacity, described_state

if TYPE_CHECKING:
    from relaxd.loader.adapters import AdapterStacks
    from relaxd.loader.model import Model


class Pages(NamedTuple):
    """A sequence that no entry has: its page table and how many tokens it holds."""

    table: Table
    length: int


def layout_of(model: "Model", capacity: int | None) -> PageLayout:
    """The pages of a model's sequences of up to `capacity` tokens; raises PagesError where the
    system has no such pages, or the rows of no admitted capacity fill them.
    """
    wanted = check_capacity(model, capacity)
    if not is_available():
        raise PagesError("a KV cache has pages on Linux of 64 bits alone")
    shapes = [
        CacheShape(heads, math.prod(rest) * dtype.itemsize)
        for (heads, _, *rest), dtype in cache_forms(model, wanted).values()
    ]
    described = described_state(model)
    dim = next(dim for dim in model.dims if dim.name == described.capacity)
    aligned = aligned_capacity(shapes, wanted)
    if aligned is None:
        raise PagesError("a KV cache of such short rows has no pages")
    if not dim.admits(aligned):
        raise PagesError(
            f"the rows of {wanted} tokens do not fill whole pages, as those of {aligned} would",
            hint=f"compile the model for {aligned} tokens, or choose a smaller capacity",
        )
    return PageLayout(shapes, aligned)


class PagedState(State):
    """A state whose entries have pages of a pool, which other states may share. The pages that an
    entry has of other sequences are read only.
    """

    def __init__(
        self,
        model: "Model",
        entries: int,
        capacity: int | None,
        adapters: "AdapterStacks | None",
        pool: PagePool,
    ) -> None:
        self._pool = pool
        self._tables: list[Table] = [[] for _ in range(entries)]
        self._tails: list[int | None] = [None] * entries
        self._mappings = [0] * entries
        self._addresses: list[int] = []
        super().__init__(model, entries, capacity, adapters)

    @property
    def nbytes(self) -> int:
        """The bytes of the blocks that entries have; those that several have count once."""
        return len(self.held_blocks()) * self._pool.layout.block_bytes

    def held_blocks(self) -> set[Block]:
        """The extents and numbers of the blocks that entries have."""
        return {
            (extent, block) for table in self._tables for block, extent in enumerate(list(table))
        }

    def reserve(self, entry: int, tokens: int) -> None:
        """Have memory for the first `tokens` tokens of an entry; raises CacheFullError."""
        table = self._tables[entry]
        if len(table) < (need := self._pool.layout.cover(tokens)):
            tail = self._tails[entry]
            if tail is None:
                tail = self._begin_tail(entry)
            self._pool.hold_new(tail, len(table), need)
            table += [tail] * (need - len(table))

    def detach(self, entry: int) -> Pages:
        """Take an entry's sequence out of it: the entry is empty then. Pages have to come back by
        `adopt`, or the pool's `release`.
        """
        table, length = self._tables[entry], int(self._lengths[entry])
        count = self._pool.layout.cover(length)
        self._pool.release(table, count)
        self._drop(entry)
        return Pages(table[:count], length)

    def adopt(self, entry: int, pages: Pages) -> None:
        """Give an empty entry a sequence, which nobody else has any more. Raises CacheFullError,
        OSError where the disk failed; then nothing changes.
        """
        pool, (table, length) = self._pool, pages
        pool.fetch(table)
        if not table or not pool.continue_tail(table, pool.layout.count_full(length)):
            self._branch(entry, table, length)
            pool.release(table)
            return
        self._set(entry, list(table), table[-1], length)
        self._map(entry)

    def share(self, entry: int, pages: Pages, length: int) -> None:
        """Give an empty entry the first `length` tokens of a sequence, which stays as it is. Raises
        as `adopt` does.
        """
        table = pages.table[: self._pool.layout.cover(length)]
        self._pool.fetch(table)
        self._branch(entry, table, length)

    def truncate(self, entry: int, length: int) -> None:
        """See `State.truncate`; raises CacheFullError where others have the rows that new tokens
        overwrite and there is no memory for a copy.
        """
        have = int(self._lengths[entry])
        if 0 <= length < have:
            if self._needs_copy(entry, length):
                self._renew_tail(entry, length)
                return
            # A draft token that is dropped may begin a block, which the next token needs again.
            table = self._tables[entry]
            count = min(self._pool.layout.cover(length) + 1, len(table))
            self._pool.release(table, count)
            del table[count:]
        super().truncate(entry, length)

    def copy(
        self, source: int, target: int, length: int | None = None, *, other: State | None = None
    ) -> None:
        """See `State.copy`: whole blocks are shared. other: a state with pages of the same pool."""
        origin = self if other is None else other
        if not isinstance(origin, PagedState) or origin._pool is not self._pool:
            raise InputError("the states have pages of different pools", hint="give them one pool")
        have = int(origin._lengths[source])
        count = have if length is None else length
        if not 0 <= count <= have:
            raise InputError(f"entry {source} has {have} tokens: {count} cannot be copied from it")
        if origin is self and source == target:
            self.truncate(target, count)
            return
        self._pool.release(self.detach(target).table)
        self._adapters.copy(origin._adapters, source, target)
        self.share(target, Pages(origin._tables[source], have), count)

    def swap(self, first: int, second: int) -> None:
        """Exchange what two entries hold."""
        self._adapters.swap(first, second)
        self._lengths[[first, second]] = self._lengths[[second, first]]
        tables, tails = self._tables, self._tails
        tables[first], tables[second] = tables[second], tables[first]
        tails[first], tails[second] = tails[second], tails[first]
        for entry in (first, second):
            if self._tails[entry] is not None:
                self._map(entry)

    def _allocate(self) -> Arrays:
        """Addresses for the entries' pages: memory of this process lies there until an entry has
        some.
        """
        buffers, layout = {}, self._pool.layout
        for name, (shape, dtype) in cache_forms(self._model, layout.capacity).items():
            count = len(self._lengths)
            memory = mmap.mmap(-1, count * math.prod(shape) * dtype.itemsize, mmap.MAP_PRIVATE)
            array = np.frombuffer(memory, np.uint8)
            self._addresses.append(address(array))
            buffers[name] = array.view(dtype).reshape([count, *shape])
        return buffers

    def _reserve(self, first: int, after: np.ndarray) -> None:
        self._pool.memory.require_owner()
        for entry, tokens in enumerate(after.tolist(), first):
            self.reserve(entry, tokens)

    def _clear(self, first: int, lengths: list[int], rows: int) -> None:
        """Zero rows as far as the entries have memory for them."""
        for entry, length in enumerate(lengths, first):
            reach = self._pool.layout.reach(len(self._tables[entry]))
            super()._clear(entry, [length], max(min(rows, reach - length), 0))

    def _needs_copy(self, entry: int, length: int) -> bool:
        """True if others hold blocks that the tokens behind the first `length` are written to."""
        first, tail = self._pool.layout.count_full(length), self._tails[entry]
        return any(
            extent != tail or self._pool.is_shared(extent, block)
            for block, extent in enumerate(self._tables[entry][first:], first)
        )

    def _renew_tail(self, entry: int, length: int) -> None:
        """Keep the first tokens of an entry, and copy what is behind their shared blocks."""
        table, tail, have = self._tables[entry], self._tails[entry], int(self._lengths[entry])
        self._set(entry, [], None, 0)
        try:
            self._branch(entry, table[: self._pool.layout.cover(length)], length)
        except CacheFullError:
            self._set(entry, table, tail, have)
            raise
        except BaseException:
            self._give_up(table, tail)
            raise
        self._give_up(table, tail)

    def _give_up(self, table: Table, tail: int | None) -> None:
        if tail is not None:
            self._pool.end_tail(tail)
        self._pool.release(table)

    def _set(self, entry: int, table: Table, tail: int | None, length: int) -> None:
        self._tables[entry], self._tails[entry], self._lengths[entry] = table, tail, length

    def _drop(self, entry: int) -> None:
        tail = self._tails[entry]
        self._set(entry, [], None, 0)
        if tail is not None:
            self._pool.end_tail(tail)

    def _begin_tail(self, entry: int) -> int:
        tail = self._tails[entry] = self._pool.begin_tail()
        self._map(entry)
        return tail

    def _branch(self, entry: int, table: Table, length: int) -> None:
        """Give an empty entry the first tokens of a table: blocks of these alone are shared, the
        rows behind them copied to the entry's own tail.
        """
        pool, own = self._pool, self._pool.layout.count_full(length)
        if not table:
            return
        if not self._can_map(entry, table[:own]):
            own = 0
        tail = pool.begin_tail()
        try:
            pool.hold_new(tail, own, len(table))
            pool.copy_rows(table, tail, own, length)
        except BaseException:
            pool.drop_tail(tail)
            raise
        pool.hold(table[:own])
        self._set(entry, [*table[:own], *[tail] * (len(table) - own)], tail, length)
        self._map(entry)

    def _can_map(self, entry: int, shared: Table) -> bool:
        """True if the kernel admits the mappings of an entry with blocks of other sequences."""
        pool, runs = self._pool, len(_shared_runs(shared, None))
        wanted = self._count_mappings(runs) - self._mappings[entry]
        return pool.mappings + wanted <= pool.most_mappings

    def _count_mappings(self, runs: int) -> int:
        layout = self._pool.layout
        return layout.planes * (runs + 1) if runs else len(layout.caches)

    def _map(self, entry: int) -> None:
        """Lay the pages of an entry where the library looks for them; where the system does not,
        the entry is empty.
        """
        table, tail = self._tables[entry], self._tails[entry]
        assert tail is not None
        runs = _shared_runs(table, tail)
        try:
            self._map_blocks(entry, tail, runs)
        except BaseException:
            self._set(entry, [], None, 0)
            self._give_up(table, tail)
            raise
        count = self._count_mappings(len(runs))
        self._pool.mappings += count - self._mappings[entry]
        self._mappings[entry] = count

    def _map_blocks(self, entry: int, tail: int, runs: list[tuple[int, int, int]]) -> None:
        file, layout = self._pool.memory, self._pool.layout
        starts = [
            start + entry * size for start, size in zip(self._addresses, layout.sizes, strict=True)
        ]
        for start, offset, size in zip(starts, layout.starts, layout.sizes, strict=True):
            file.map(start, size, tail * layout.nbytes + offset, writable=True)
        for first, last, extent in runs:
            for part in layout.parts(first, last):
                offset = extent * layout.nbytes + layout.starts[part.cache] + part.start
                file.map(starts[part.cache] + part.start, part.size, offset, writable=False)


def _shared_runs(table: Table, tail: int | None) -> list[tuple[int, int, int]]:
    """The blocks that are not in the tail: the first and behind the last of one extent, and it."""
    runs: list[tuple[int, int, int]] = []
    for block, extent in enumerate(table):
        if extent == tail:
            continue
        if runs and runs[-1][1:] == (block, extent):
            runs[-1] = (runs[-1][0], block + 1, extent)
        else:
            runs.append((block, block + 1, extent))
    return runs
