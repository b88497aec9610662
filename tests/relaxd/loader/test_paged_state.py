"""Caches in pages: bits equal those of caches in arrays of their own, whatever sequences share."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.errors import CacheFullError, ExecutionError, InputError, PagesError
from relaxd.loader import paged_state
from relaxd.loader.machine import page_files
from relaxd.loader.machine.page_files import PageFile
from relaxd.loader.model import Model
from relaxd.loader.page_pool import Block, PagePool
from relaxd.loader.paged_state import PagedState, Pages, layout_of
from relaxd.loader.state import State
from tests.support.models.decoders import WORDS
from tests.support.models.paged_decoders import FORMS, TOKENS, build_paged

ENTRIES = 3
KEY = "past_key_values.0.key"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    folder, loaded = tmp_path_factory.mktemp("paged"), dict[str, Model]()

    def load(form: str) -> Model:
        if form not in loaded:
            loaded[form] = relaxd.load(build_paged(folder, form), threads=1)
        return loaded[form]

    return load


def pool_of(model: Model, blocks: int = 100, disk: Path | None = None) -> PagePool:
    return PagePool(layout_of(model, TOKENS), blocks, disk, 100)


def open_state(model: Model, pool: PagePool, entries: int = ENTRIES) -> PagedState:
    return PagedState(model, entries, TOKENS, None, pool)


def tokens(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, WORDS, (1, count))


class Pair:
    """The same sequences in pages and in arrays, and those that no entry has, by their tokens."""

    def __init__(self, model: Model, pool: PagePool, *, seed: int) -> None:
        self.pool = pool
        self.entries = ENTRIES if model.manifest.state and model.manifest.state.ragged else 1
        self.pages = [open_state(model, pool, 1) for _ in range(ENTRIES // self.entries)]
        self.arrays = [model.state(capacity=TOKENS) for _ in range(ENTRIES // self.entries)]
        if self.entries > 1:
            self.pages = [open_state(model, pool)]
            self.arrays = [model.state(entries=ENTRIES, capacity=TOKENS)]
        self.stored: list[tuple[Pages, State, int]] = []
        self.random = np.random.default_rng(seed)

    def position(self, slot: int) -> tuple[int, int]:
        return (0, slot) if self.entries > 1 else (slot, 0)

    def length(self, slot: int) -> int:
        state, entry = self.position(slot)
        return self.pages[state].lengths[entry]

    def choose_length(self, most: int) -> int:
        """Any length, as often one that fills blocks."""
        length, block = int(self.random.integers(most + 1)), self.pool.layout.block
        return length // block * block if self.random.integers(2) else length

    def extend(self, slot: int) -> None:
        state, entry = self.position(slot)
        room = min(TOKENS - self.length(slot), 256)
        count = int(self.random.choice([1, 2, 15, 16, 63, 64, 65, 127, 200]))
        if count > room:
            return
        new = self.random.integers(0, WORDS, (1, count))
        ours = self.pages[state].step(new, first=entry)["logits"]
        theirs = self.arrays[state].step(new, first=entry)["logits"]
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))

    def step(self, _: int) -> None:
        """All entries at once, where they have room."""
        if self.entries == 1 or max(map(self.length, range(ENTRIES))) + 3 > TOKENS:
            return
        new = self.random.integers(0, WORDS, (ENTRIES, 3))
        ours = self.pages[0].step(new)["logits"]
        theirs = self.arrays[0].step(new)["logits"]
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))

    def truncate(self, slot: int) -> None:
        state, entry = self.position(slot)
        length = self.choose_length(self.length(slot))
        self.pages[state].truncate(entry, length)
        self.arrays[state].truncate(entry, length)

    def copy(self, slot: int) -> None:
        source = int(self.random.integers(ENTRIES))
        length = self.choose_length(self.length(source))
        (state, entry), (origin, index) = self.position(slot), self.position(source)
        self.pages[state].copy(index, entry, length, other=self.pages[origin])
        self.arrays[state].copy(index, entry, length, other=self.arrays[origin])

    def swap(self, slot: int) -> None:
        if self.entries > 1:
            other = int(self.random.integers(ENTRIES))
            self.pages[0].swap(slot, other)
            self.arrays[0].swap(slot, other)

    def store(self, slot: int) -> None:
        """Take a sequence out of its entry; a copy keeps what it was."""
        if len(self.stored) >= 3:
            self.forget(slot)
        state, entry = self.position(slot)
        memory = self.arrays[state].fork()
        self.stored.append((self.pages[state].detach(entry), memory, entry))
        self.arrays[state].truncate(entry, 0)

    def resume(self, slot: int) -> None:
        """Put a stored sequence into an entry, or share its beginning."""
        if not self.stored:
            return
        state, entry = self.position(slot)
        self.pool.release(self.pages[state].detach(entry).table)
        pages, memory, index = self.stored[int(self.random.integers(len(self.stored)))]
        length = pages.length
        if self.random.integers(2):
            self.stored = [each for each in self.stored if each[0] is not pages]
            self.pages[state].adopt(entry, pages)
        else:
            length = self.choose_length(length)
            self.pages[state].share(entry, pages, length)
        self.arrays[state].copy(index, entry, length, other=memory)

    def forget(self, _: int) -> None:
        if self.stored:
            self.pool.release(self.stored.pop(0)[0].table)

    def offload(self, _: int) -> None:
        if self.stored and self.pool.offloads:
            running = set[Block]().union(*(each.held_blocks() for each in self.pages))
            blocks = [
                (extent, block)
                for block, extent in enumerate(self.stored[-1][0].table)
                if (extent, block) not in running and self.pool.is_in_memory((extent, block))
            ]
            self.pool.offload(blocks)

    def check(self) -> None:
        for ours, theirs in zip(self.pages, self.arrays, strict=True):
            assert ours.lengths == theirs.lengths
            for name in ours._buffers:
                for entry in range(self.entries):
                    lhs, rhs = ours.cached(name, entry), theirs.cached(name, entry)
                    np.testing.assert_array_equal(lhs.view(np.uint8), rhs.view(np.uint8))

    def count_blocks(self) -> int:
        tables = [table for state in self.pages for table in state._tables]
        tables += [pages.table for pages, _, _ in self.stored]
        return len({(extent, block) for table in tables for block, extent in enumerate(table)})

    def end(self) -> None:
        for pages in self.pages:
            for entry in range(self.entries):
                self.pool.release(pages.detach(entry).table)
        while self.stored:
            self.forget(0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", FORMS)
def test_bits_are_those_of_arrays(
    models: Callable[[str], Model], form: str, seed: int, tmp_path: Path
) -> None:
    pool = pool_of(models(form), disk=tmp_path)
    pair = Pair(models(form), pool, seed=seed)
    actions = [
        *[pair.extend] * 4, pair.step, pair.step, pair.truncate, pair.copy, pair.copy, pair.swap,
        pair.store, pair.resume, pair.resume, pair.forget, pair.offload,
    ]  # fmt: skip
    for _ in range(150):
        actions[pair.random.integers(len(actions))](int(pair.random.integers(ENTRIES)))
        pair.check()
        assert pool.used + pool.on_disk == pair.count_blocks()
    pair.end()
    assert (pool.used, pool.on_disk, pool.nbytes) == (0, 0, (0, 0))


def test_nothing_changes_where_memory_is_missing(models: Callable[[str], Model]) -> None:
    pool = pool_of(models("float32"), blocks=3)
    state = open_state(models("float32"), pool)
    state.step(tokens(150, 1))
    rows = state.cached(KEY).copy()
    # Two blocks can be shared, and the third has to be copied.
    with pytest.raises(CacheFullError, match="1 blocks are missing, the limit is 3"):
        state.copy(0, 1)
    with pytest.raises(CacheFullError):
        state.step(tokens(60, 2))
    assert (state.lengths, pool.used) == ((150, 0, 0), 3)
    state.copy(0, 1, 128)
    with pytest.raises(CacheFullError):
        state.truncate(1, 100)
    assert (state.lengths, pool.used) == ((150, 128, 0), 3)
    np.testing.assert_array_equal(state.cached(KEY), rows)
    np.testing.assert_array_equal(state.cached(KEY, 1), rows[:, :128])
    state.step(tokens(42, 2))
    state.truncate(1, 128)


def test_whole_blocks_are_shared_and_the_rest_is_copied(models: Callable[[str], Model]) -> None:
    pool = pool_of(models("float32"))
    state = open_state(models("float32"), pool)
    state.step(tokens(200, 1))
    state.copy(0, 1)
    assert pool.used == 5
    rows = state.cached(KEY).copy()
    # The second block is written to: each has its own.
    state.truncate(1, 70)
    state.step(tokens(130, 2), first=1)
    assert pool.used == 7
    assert state.nbytes == 7 * pool.layout.block_bytes
    np.testing.assert_array_equal(state.cached(KEY), rows)
    np.testing.assert_array_equal(state.cached(KEY, 1)[:, :70], rows[:, :70])


@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_one_sequence_writes_behind_shared_blocks(
    models: Callable[[str], Model], longer: bool, ended: bool
) -> None:
    """One that was stored with nothing but blocks of another, which runs or has ended, begins its
    own.
    """
    state = open_state(models("float32"), pool_of(models("float32")))
    arrays = models("float32").state(entries=ENTRIES, capacity=TOKENS)
    for each in (state, arrays):
        each.step(tokens(128, 1))
        each.copy(0, 1)
    pages = state.detach(1)
    if longer:
        for each in (state, arrays):
            each.step(tokens(70, 2))
    origin = state.detach(0) if ended else None
    state.adopt(1, pages)
    for each in (state, arrays):
        each.step(tokens(40, 3), first=1)
    if origin is not None:
        state.adopt(0, origin)
    for each in (state, arrays):
        each.step(tokens(40, 4))
    for entry in range(2):
        np.testing.assert_array_equal(state.cached(KEY, entry), arrays.cached(KEY, entry))


def test_pages_of_others_cannot_be_written(models: Callable[[str], Model]) -> None:
    """Not even by a library with a fault: the process ends before another sequence is wrong."""
    state = open_state(models("float32"), pool_of(models("float32")))
    state.step(tokens(128, 1))
    state.copy(0, 1)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        state.cached(KEY, 1)[:] = 0
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
    assert state.cached(KEY).any()


def test_where_mappings_are_missing_blocks_are_copied(models: Callable[[str], Model]) -> None:
    pool = pool_of(models("float32"))
    state = open_state(models("float32"), pool)
    state.step(tokens(128, 1))
    pool.most_mappings = pool.mappings + 2
    state.copy(0, 1)
    assert pool.used == 4
    np.testing.assert_array_equal(state.cached(KEY), state.cached(KEY, 1))


def test_a_system_that_maps_nothing(
    models: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is empty, and the others stay."""
    pool = pool_of(models("float32"))
    state = open_state(models("float32"), pool)
    state.step(tokens(128, 1))
    rows, used = state.cached(KEY).copy(), pool.used
    monkeypatch.setattr(PageFile, "map", lambda *_, **__: failure())
    with pytest.raises(ExecutionError, match=r"did not map pages .*Cannot allocate memory"):
        state.copy(0, 1)
    with pytest.raises(ExecutionError):
        state.step(tokens(3, 2), first=2)
    monkeypatch.undo()
    assert (state.lengths, pool.used) == ((128, 0, 0), used)
    np.testing.assert_array_equal(state.cached(KEY), rows)
    state.step(tokens(3, 2), first=2)


def failure() -> None:
    raise page_files._failure("map", errno.ENOMEM)


def test_states_of_two_pools_share_nothing(models: Callable[[str], Model]) -> None:
    lhs, rhs = (open_state(models("float32"), pool_of(models("float32"))) for _ in range(2))
    with pytest.raises(InputError, match="pages of different pools"):
        lhs.copy(0, 0, other=rhs)


def test_a_fork_has_arrays_of_its_own(models: Callable[[str], Model]) -> None:
    state = open_state(models("float32"), pool_of(models("float32")))
    state.step(tokens(100, 1), first=1)
    fork = state.fork()
    new = tokens(5, 2)
    logits = state.step(new, first=1)["logits"]
    np.testing.assert_array_equal(fork.step(new, first=1)["logits"], logits)


def test_a_forked_process_leaves_the_pages_of_its_parent(models: Callable[[str], Model]) -> None:
    model = models("float32")
    state = open_state(model, pool_of(model))
    state.step(tokens(200, 1))
    before = state.cached(KEY).copy()
    child = os.fork()
    if child == 0:
        refused = 0
        for act in (
            lambda: state.step(tokens(1, 2)),
            lambda: state.truncate(0, 3),
        ):
            try:
                act()
            except ExecutionError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert np.array_equal(state.cached(KEY), before)


def test_models_without_pages(
    models: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged_state, "aligned_capacity", lambda *_: 1536)
    with pytest.raises(PagesError, match="do not fill whole pages, as those of 1536 would"):
        layout_of(models("float32"), None)
    monkeypatch.setattr(paged_state, "is_available", lambda: False)
    with pytest.raises(PagesError, match="on Linux of 64 bits alone"):
        layout_of(models("float32"), None)
