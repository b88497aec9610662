"""How much memory the KV cache of an engine may take, and what it takes."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from relaxd.errors import ExecutionError, InputError, PagesError
from relaxd.llm.paged_prefixes import PagedPrefixes
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.slots import count_slots, paged_slots_of, slots_of
from relaxd.loader.adapters import AdapterStacks
from relaxd.loader.model import Model
from relaxd.loader.page_layout import PageLayout
from relaxd.loader.page_pool import PagePool
from relaxd.loader.paged_state import layout_of

logger = logging.getLogger(__name__)

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("iB", 1024), ("B", 1000), ("", 1024))
}
_COPIES = 2
"""Blocks that a sequence may need beside its own, while shared rows are copied."""
_DISK_SHARE = 4


@dataclass(frozen=True)
class CachePages:
    """The pages of a KV cache: the tokens and bytes of a block, the limit of blocks, those in
    memory and on the disk, the bytes that pages take there, sequences that are cached without a
    slot, and how many were dropped or offloaded.
    """

    block: int
    block_bytes: int
    limit: int
    used: int
    on_disk: int
    memory_bytes: int
    disk_bytes: int
    stored: int
    evicted: int
    offloaded: int


@dataclass(frozen=True)
class CacheMemory:
    """The memory of a KV cache, in bytes.

    limit: of all sequences, those that have ended as well; by default as much as those that run at
    once can fill. disk: a folder to which sequences are moved that are used no more and do not fit;
    disk_limit: of these, by default four times the limit. pages: whether the cache is in pages,
    which sequences share; by default where the system and the bundle admit it.
    """

    limit: int | None = None
    disk: Path | None = None
    disk_limit: int | None = None
    pages: bool | None = None

    @classmethod
    def parse(
        cls, limit: str | None, disk: Path | None, disk_limit: str | None, *, pages: bool
    ) -> "CacheMemory":
        """Read the options of the command line, sizes as in 4GiB; raises InputError."""
        sizes = [None if text is None else parse_bytes(text) for text in (limit, disk_limit)]
        return cls(sizes[0], disk, sizes[1], None if pages else False)

    def open(
        self,
        model: Model,
        size: tuple[int | None, int | None],
        adapters: AdapterStacks | None,
        *,
        share: bool,
    ) -> Prefixes:
        """The KV cache of a model. size: how many sequences run at once, and the tokens of each.
        Raises InputError for what the bundle, the system or the limit does not admit.
        """
        sequences, capacity = size
        asked = self.pages or any(
            each is not None for each in (self.limit, self.disk, self.disk_limit)
        )
        if self.pages is False and asked:
            raise InputError(
                "a KV cache without pages has no limit of its memory",
                hint="leave out --no-pages, or --cache-memory and --cache-disk",
            )
        if self.pages is not False:
            try:
                return self._open_pages(model, size, adapters, share=share)
            except PagesError as error:
                if asked:
                    raise
                logger.info("the KV cache is not in pages: %s", error)
        return Prefixes(slots_of(model, sequences, capacity, adapters), share=share)

    def _open_pages(
        self,
        model: Model,
        size: tuple[int | None, int | None],
        adapters: AdapterStacks | None,
        *,
        share: bool,
    ) -> PagedPrefixes:
        """See `open`; raises PagesError where system or bundle admit no pages."""
        count, capacity = count_slots(model, size[0]), size[1]
        pool = self._open_pool(layout_of(model, capacity), count)
        slots = paged_slots_of(model, count, capacity, adapters, pool)
        return PagedPrefixes(slots, pool, share=share)

    def _open_pool(self, layout: PageLayout, count: int) -> PagePool:
        least = layout.blocks + _COPIES
        limit = count * layout.blocks + _COPIES
        if self.limit is not None:
            limit = self.limit // layout.block_bytes
        if limit < least:
            raise InputError(
                f"{self.limit} bytes are too few for the KV cache of one sequence of "
                f"{layout.capacity} tokens: it takes {least * layout.block_bytes}",
                hint="raise --cache-memory, or lower --capacity",
            )
        disk_limit = limit * _DISK_SHARE
        if self.disk_limit is not None:
            if self.disk is None:
                raise InputError(
                    "there is a limit of the disk, but no folder", hint="give --cache-disk too"
                )
            disk_limit = self.disk_limit // layout.block_bytes
        try:
            return PagePool(layout, limit, self.disk, disk_limit)
        except (OSError, ExecutionError) as error:
            raise PagesError(
                f"there can be no file for pages of the KV cache: {error}",
                hint="choose another folder (--cache-disk), or turn pages off (--no-pages)",
            ) from error


def pages_of(prefixes: Prefixes) -> CachePages | None:
    """Count what pages take now; None of a cache without."""
    if not isinstance(prefixes, PagedPrefixes):
        return None
    pool, layout = prefixes.pool, prefixes.pool.layout
    return CachePages(
        layout.block,
        layout.block_bytes,
        pool.limit,
        pool.used,
        pool.on_disk,
        *pool.nbytes,
        prefixes.stored,
        prefixes.evicted,
        prefixes.offloaded,
    )


def parse_bytes(text: str) -> int:
    """Reads 4GiB, 500MB or a number of bytes; raises InputError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?(?:i?B)?)", text.strip())
    if match is None or match[2] not in _UNITS:
        raise InputError(f"{text!r} is no size", hint="give bytes, or as in 4GiB or 500MB")
    return int(float(match[1]) * _UNITS[match[2]])
