"""The memory pages of many sequences' KV caches: allocated by the block, shared, and offloaded."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from relaxd.errors import CacheFullError
from relaxd.loader.machine.page_files import PageFile, mappings_left
from relaxd.loader.page_layout import PageLayout

Table = list[int]
"""A sequence's page table: the extent that has each block."""
Block = tuple[int, int]
"""An extent and the number of a block in it."""

_SPARE_MAPPINGS = 8192
"""Left to the rest of the process."""


class PagePool:
    """Blocks of tokens in files. An extent is a place in them for a whole sequence, of which only
    the blocks that are held take memory; a sequence whose beginning is another's has its blocks in
    several extents. Blocks that nobody holds read as zeros.

    limit: how many blocks may be in memory. folder: where blocks that are offloaded go, at most
    `disk_limit` of them. Not for several threads at once, but for the counts. Raises OSError and
    ExecutionError where there can be no such files.
    """

    def __init__(
        self, layout: PageLayout, limit: int, folder: Path | None = None, disk_limit: int = 0
    ) -> None:
        self.layout = layout
        self.limit, self.disk_limit = limit, disk_limit
        self.used = self.on_disk = 0
        self.mappings = 0
        """Those that arrays over the pages take."""
        self.most_mappings = max(mappings_left() - _SPARE_MAPPINGS, 0)
        self.memory = PageFile()
        self._disk = None if folder is None else PageFile(folder)
        for file in filter(None, (self.memory, self._disk)):
            # A system that admits no such file says so now.
            file.grow(layout.nbytes)
            file.punch(0, layout.page)
        self._holders: list[list[int]] = []
        self._offloaded: list[set[int]] = []
        self._tails = set[int]()
        self._busy: list[int] = []
        """The held blocks of each extent."""
        self._free: list[int] = []

    @property
    def offloads(self) -> bool:
        """True if there is a disk to offload to."""
        return self._disk is not None

    @property
    def nbytes(self) -> tuple[int, int]:
        """The bytes that pages take in memory and on the disk."""
        return self.memory.nbytes, 0 if self._disk is None else self._disk.nbytes

    def begin_tail(self) -> int:
        """An extent of no blocks, for a sequence to write into."""
        if not self._free:
            self._free.append(len(self._holders))
            self._holders.append([0] * self.layout.blocks)
            self._offloaded.append(set())
            self._busy.append(0)
            self.memory.grow(len(self._holders) * self.layout.nbytes)
        extent = self._free.pop()
        self._tails.add(extent)
        return extent

    def continue_tail(self, table: Table, first: int) -> bool:
        """True if its only holder may write into a table's last extent from the block `first` on;
        it is a tail from now on.
        """
        extent = table[-1]
        holders = self._holders[extent]
        own = set(table[first:]) <= {extent} and all(
            count == (1 if block < len(table) else 0)
            for block, count in enumerate(holders[first:], first)
        )
        if not own or extent in self._tails:
            return False
        self._tails.add(extent)
        return True

    def end_tail(self, extent: int) -> None:
        """Nobody writes into an extent any more."""
        self._tails.remove(extent)
        self._retire(extent)

    def drop_tail(self, extent: int) -> None:
        """Give up a tail and its blocks, which nobody else holds."""
        blocks = [block for block, count in enumerate(self._holders[extent]) if count]
        self.end_tail(extent)
        for block in blocks:
            self.release([extent] * (block + 1), block)

    def is_shared(self, extent: int, block: int) -> bool:
        """True if several sequences hold a block."""
        return self._holders[extent][block] > 1

    def hold_new(self, extent: int, first: int, last: int) -> None:
        """Allocate blocks of a tail; raises CacheFullError."""
        self._require_room(last - first)
        holders = self._holders[extent]
        for block in range(first, last):
            assert not holders[block], "a block is allocated twice"
            holders[block] = 1
        self.used += last - first
        self._busy[extent] += last - first

    def hold(self, table: Table) -> None:
        """Share the blocks of a table."""
        for block, extent in enumerate(table):
            self._holders[extent][block] += 1

    def release(self, table: Table, first: int = 0) -> None:
        """Give up the blocks of a table from `first` on; those that nobody holds are freed."""
        freed = []
        for block, extent in enumerate(table[first:], first):
            self._holders[extent][block] -= 1
            if not self._holders[extent][block]:
                freed.append((extent, block))
        for extent, start, end in _runs(freed):
            self._free_blocks(extent, start, end)
        for extent in {extent for extent, _ in freed}:
            self._retire(extent)

    def is_in_memory(self, block: Block) -> bool:
        """True if a block that is held is not on the disk."""
        return block[1] not in self._offloaded[block[0]]

    def offload(self, blocks: Sequence[Block]) -> None:
        """Move blocks that no state has to the disk; those of an extent in their order. Raises
        OSError where the disk failed.
        """
        for extent, start, end in _runs(blocks):
            self._move(extent, start, end, to_disk=True)

    def fetch(self, table: Table) -> None:
        """Bring a table's blocks back to memory; raises CacheFullError, and OSError where the disk
        failed.
        """
        chosen = [
            (extent, block)
            for block, extent in enumerate(table)
            if block in self._offloaded[extent]
        ]
        self._require_room(len(chosen))
        for extent, start, end in _runs(chosen):
            self._move(extent, start, end, to_disk=False)

    def copy_rows(self, table: Table, target: int, first: int, tokens: int) -> None:
        """Copy the rows of a table's blocks from `first` on, up to those of the first `tokens`
        tokens, to another extent.
        """
        size, starts = self.layout.nbytes, self.layout.starts
        for block, extent in enumerate(table[first:], first):
            for part in self.layout.parts(block, block + 1, tokens):
                start = starts[part.cache] + part.start
                source = extent * size + start
                self.memory.copy_from(self.memory, source, target * size + start, part.size)

    def _require_room(self, blocks: int) -> None:
        missing = self.used + blocks - self.limit
        if blocks and missing > 0:
            raise CacheFullError(missing, self.limit)

    def _free_blocks(self, extent: int, start: int, end: int) -> None:
        offloaded = self._offloaded[extent]
        gone = offloaded.intersection(range(start, end))
        offloaded -= gone
        self.on_disk -= len(gone)
        self.used -= end - start - len(gone)
        self._busy[extent] -= end - start
        if self._busy[extent]:
            self._punch(self.memory, extent, start, end)
        if gone and self._disk is not None and self._busy[extent]:
            self._punch(self._disk, extent, start, end)

    def _retire(self, extent: int) -> None:
        """Free an extent of which nothing is held."""
        if self._busy[extent]:
            return
        for file in (self.memory, self._disk):
            if file is not None:
                file.punch(extent * self.layout.nbytes, self.layout.nbytes)
        if extent not in self._tails:
            self._free.append(extent)

    def _move(self, extent: int, start: int, end: int, *, to_disk: bool) -> None:
        assert self._disk is not None
        source, target = (self.memory, self._disk) if to_disk else (self._disk, self.memory)
        target.grow((extent + 1) * self.layout.nbytes)
        for offset, size in self._ranges(extent, start, end):
            target.copy_from(source, offset, offset, size)
        self._punch(source, extent, start, end)
        count = end - start if to_disk else start - end
        self.used -= count
        self.on_disk += count
        change = (
            self._offloaded[extent].update
            if to_disk
            else (self._offloaded[extent].difference_update)
        )
        change(range(start, end))

    def _punch(self, file: PageFile, extent: int, start: int, end: int) -> None:
        for offset, size in self._ranges(extent, start, end):
            file.punch(offset, size)

    def _ranges(self, extent: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        base, starts = extent * self.layout.nbytes, self.layout.starts
        for part in self.layout.parts(start, end):
            yield base + starts[part.cache] + part.start, part.size


def _runs(blocks: Sequence[Block]) -> Iterator[tuple[int, int, int]]:
    """Blocks that follow one another in one extent: the extent, the first and behind the last."""
    for (extent, _), run in groupby(
        enumerate(blocks), lambda item: (item[1][0], item[1][1] - item[0])
    ):
        numbers = [block for _, (_, block) in run]
        yield extent, numbers[0], numbers[-1] + 1
