"""Which memory pages hold which tokens of a KV cache."""

import mmap
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

_LEAST_TOKENS = 16
_MOST_TOKENS = 1024
"""Of a block: larger ones share too little."""


class CacheShape(NamedTuple):
    """The rows of one sequence in one cache: bytes of a row, for each of `heads` heads."""

    heads: int
    row: int


class Part(NamedTuple):
    """Bytes of a sequence: in which cache, from where on there, and how many."""

    cache: int
    start: int
    size: int


class PageLayout:
    """A sequence's caches, one behind the other, in blocks of `block` tokens.

    A block is the same tokens in every cache and head. It has whole pages: those that begin in its
    rows or where these end. Where rows do not fill pages, a page that a block ends in has the first
    rows of the next block too.

    capacity: the tokens of a sequence, whose rows have to fill pages (`aligned_capacity`).
    """

    def __init__(
        self, caches: Sequence[CacheShape], capacity: int, page: int = mmap.PAGESIZE
    ) -> None:
        self.caches = tuple(caches)
        self.capacity = capacity
        self.page = page
        self._rows = sorted({cache.row for cache in caches})
        longest = max(-(-page // row) for row in self._rows)
        self.block = 1 << (max(longest, _LEAST_TOKENS) - 1).bit_length()
        sizes = [cache.heads * cache.row * capacity for cache in caches]
        self.starts = tuple(accumulate(sizes[:-1], initial=0))
        """Where each cache begins."""
        self.sizes = tuple(sizes)
        self.nbytes = sum(sizes)
        self.blocks = self.cover(capacity)
        self.block_bytes = self.block * sum(cache.heads * cache.row for cache in caches)
        self.planes = sum(cache.heads for cache in caches)

    def cover(self, tokens: int) -> int:
        """How many blocks hold so many tokens."""
        return -(-tokens // self.block)

    def count_full(self, tokens: int) -> int:
        """How many blocks have rows of the first `tokens` tokens alone."""
        count = tokens // self.block
        while any(self._first_page(count, row) * self.page > tokens * row for row in self._rows):
            count -= 1
        return count

    def reach(self, blocks: int) -> int:
        """How many tokens have rows in these blocks, in full or in part."""
        most = max(-(-self._first_page(blocks, row) * self.page // row) for row in self._rows)
        return min(most, self.capacity)

    def parts(self, first: int, last: int, tokens: int | None = None) -> Iterator[Part]:
        """The pages of the blocks from `first` to before `last`; tokens: no rows behind these."""
        for index, (heads, row) in enumerate(self.caches):
            plane = row * self.capacity
            begin = min(self._first_page(first, row) * self.page, plane)
            end = min(self._first_page(last, row) * self.page, plane)
            end = end if tokens is None else min(end, tokens * row)
            if begin < end:
                for head in range(heads):
                    yield Part(index, head * plane + begin, end - begin)

    def _first_page(self, block: int, row: int) -> int:
        return -(-block * self.block * row // self.page)


def aligned_capacity(
    caches: Sequence[CacheShape], capacity: int, page: int = mmap.PAGESIZE
) -> int | None:
    """The least capacity from `capacity` on at which the rows of each head fill pages; None where
    blocks would have too many tokens to share any.
    """
    step = 1
    for _, row in caches:
        if not row or -(-page // row) > _MOST_TOKENS:
            return None
        while step * row % page:
            step *= 2
    return -(-capacity // step) * step
