"""Engines whose KV cache is in pages: answers are those of arrays, with any limit of memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relaxd.errors import InputError
from relaxd.llm import CacheMemory, Engine, Sampling, Speculation
from relaxd.llm.cache_memory import CachePages, parse_bytes
from relaxd.llm.paged_prefixes import PagedPrefixes
from relaxd.loader.machine.page_files import PageFile
from relaxd.loader.model import Model
from relaxd.loader.opening import load
from tests.support.models.decoders import WORDS
from tests.support.models.paged_decoders import FORMS, TOKENS, build_paged

ARRAYS = CacheMemory(pages=False)
ANSWER = Sampling(max_tokens=40)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    folder, models = tmp_path_factory.mktemp("cache"), dict[str, Model]()

    def load_form(form: str) -> Model:
        if form not in models:
            models[form] = load(build_paged(folder, form), threads=1)
        return models[form]

    return load_form


def open_engine(model: Model, cache: CacheMemory, **settings: int | Speculation) -> Engine:
    arguments = {"sequences": 3, "capacity": TOKENS, **settings}
    return Engine(model, cache=cache, **arguments)  # type: ignore[arg-type]


def conversations(count: int, shared: int = 300) -> list[list[int]]:
    """Prompts with one beginning, and ends of different lengths."""
    draw = np.random.default_rng(count)
    beginning = draw.integers(0, WORDS - 1, shared).tolist()
    return [
        [*beginning, *draw.integers(0, WORDS - 1, int(draw.integers(1, 150))).tolist()]
        for _ in range(count)
    ]


def talk(engine: Engine, prompts: list[list[int]], turns: int = 2) -> list[list[int]]:
    """All tokens of conversations in which each turn adds to the one before."""
    talks = [list(prompt) for prompt in prompts]
    for turn in range(turns):
        asked = [engine.generate(tokens, ANSWER) for tokens in talks]
        for tokens, generation in zip(talks, asked, strict=True):
            for _ in generation:
                pass
            tokens += [*generation.tokens, turn + 1, 5, 7]
    return talks


def pages(engine: Engine) -> CachePages:
    state = engine.cache_pages
    assert state is not None
    return state


def least_bytes(model: Model) -> int:
    """Memory for a single sequence of full length."""
    with open_engine(model, CacheMemory(), sequences=1) as engine:
        return pages(engine).limit * pages(engine).block_bytes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("room", ["enough", "limit", "disk"])
def test_answers_are_those_of_arrays(
    bundles: Callable[[str], Model], form: str, room: str, tmp_path: Path
) -> None:
    model, prompts = bundles(form), conversations(9)
    with open_engine(model, ARRAYS) as engine:
        assert engine.cache_pages is None
        wanted = talk(engine, prompts)
    limit = 1 << 30 if room == "enough" else least_bytes(model)
    cache = CacheMemory(limit=limit, disk=tmp_path if room == "disk" else None)
    with open_engine(model, cache) as engine:
        assert talk(engine, prompts) == wanted
        state = pages(engine)
        assert state.used <= state.limit
        if room == "enough":
            assert (state.evicted, state.offloaded) == (0, 0)
        elif room == "limit":
            assert state.evicted
            assert not state.on_disk
        else:
            assert state.offloaded
            assert state.on_disk


def test_ended_sequences_need_no_slot(bundles: Callable[[str], Model]) -> None:
    prompts = conversations(12)
    with open_engine(bundles("float32"), CacheMemory()) as engine:
        talks = talk(engine, prompts, turns=1)
        state = pages(engine)
        assert state.stored == len(prompts)
        # Each holds its own blocks alone behind the common ones.
        own = sum(len(tokens) - 300 for tokens in talks)
        assert state.used * state.block < 300 + own + 2 * state.block * len(talks)
        for tokens in reversed(talks):
            generation = engine.generate(tokens, ANSWER)
            assert generation.text() == ""
            # All but the last token of the answer, which was never computed, and what is new.
            assert generation.reused == len(tokens) - 4


def test_the_least_recently_used_goes_first(bundles: Callable[[str], Model]) -> None:
    model, draw = bundles("float32"), np.random.default_rng(3)
    prompts = [draw.integers(0, WORDS - 1, 250).tolist() for _ in range(5)]
    once = Sampling(max_tokens=1)
    with open_engine(model, CacheMemory(limit=least_bytes(model))) as engine:
        # Four blocks each: of 18, four sequences have 16.
        reused = []
        for index in (0, 1, 2, 3, 0, 4, 0, 1):
            generation = engine.generate(prompts[index], once)
            generation.text()
            reused.append(generation.reused)
    # The fifth takes the memory of the second.
    assert reused == [0, 0, 0, 0, 249, 0, 249, 0]


def test_sequences_wait_for_memory(bundles: Callable[[str], Model]) -> None:
    """Three that grow together beyond the limit: the last that came waits, and goes on."""
    model, draw = bundles("float32"), np.random.default_rng(5)
    prompts = [draw.integers(0, WORDS - 1, 330).tolist() for _ in range(3)]
    long = Sampling(max_tokens=200, stop_tokens=())
    answers = []
    for cache in (ARRAYS, CacheMemory(limit=least_bytes(model))):
        with open_engine(model, cache) as engine:
            asked = [engine.generate(prompt, long) for prompt in prompts]
            for generation in asked:
                generation.text()
            answers.append([each.tokens for each in asked])
    assert answers[0] == answers[1]
    assert sum(each.preempted for each in asked) > 0
    assert asked[0].preempted == 0


def test_drafts_change_nothing(bundles: Callable[[str], Model]) -> None:
    prompts = [prompt[:40] * 6 for prompt in conversations(5)]
    answers = []
    for cache in (ARRAYS, CacheMemory(), CacheMemory(limit=least_bytes(bundles("float32")))):
        speculate = Speculation.parse("ngram:8")
        with open_engine(bundles("float32"), cache, speculate=speculate) as engine:
            answers.append(talk(engine, prompts))
    assert answers[0] == answers[1] == answers[2]


def test_without_sharing_nothing_is_cached(bundles: Callable[[str], Model]) -> None:
    with Engine(bundles("float32"), sequences=2, capacity=TOKENS, sharing=False) as engine:
        talk(engine, conversations(4), turns=1)
    assert (pages(engine).used, pages(engine).stored) == (0, 0)


def test_a_full_disk_costs_no_answer(
    bundles: Callable[[str], Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompts = bundles("float32"), conversations(9)
    with open_engine(model, ARRAYS) as engine:
        wanted = talk(engine, prompts)
    copy, calls = PageFile.copy_from, [0]

    def fail(self: PageFile, source: PageFile, start: int, offset: int, size: int) -> None:
        calls[0] += self is not source
        if self is not source and calls[0] % 7 == 0:
            raise OSError(28, "No space left on device")
        copy(self, source, start, offset, size)

    monkeypatch.setattr(PageFile, "copy_from", fail)
    cache = CacheMemory(limit=least_bytes(model), disk=tmp_path)
    with open_engine(model, cache) as engine:
        assert talk(engine, prompts) == wanted
        assert pages(engine).evicted
    assert calls[0] > 7


def test_the_disk_has_a_limit(bundles: Callable[[str], Model], tmp_path: Path) -> None:
    model = bundles("float32")
    least = least_bytes(model)
    # Of 18 blocks.
    cache = CacheMemory(limit=least, disk=tmp_path, disk_limit=least // 2)
    with open_engine(model, cache) as engine:
        talk(engine, conversations(12))
        assert 0 < pages(engine).on_disk <= 9
        assert pages(engine).evicted
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (CacheMemory(limit=1 << 16), "too few for the KV cache of one sequence of 1024 tokens"),
        (CacheMemory(limit=1 << 30, pages=False), "has no limit of its memory"),
        (CacheMemory(disk_limit=1 << 30), "no folder"),
        (CacheMemory(disk=Path("/nowhere")), "there can be no file for pages"),
    ],
)
def test_what_cannot_be_is_said(
    bundles: Callable[[str], Model], cache: CacheMemory, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        open_engine(bundles("float32"), cache)


def test_a_system_without_such_files(
    bundles: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays take their place, unless pages are asked for."""

    def refuse(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.memfd_create", refuse)
    with open_engine(bundles("float32"), CacheMemory()) as engine:
        assert engine.cache_pages is None
    with pytest.raises(InputError, match=r"no file for pages of the KV cache: .*not implemented"):
        open_engine(bundles("float32"), CacheMemory(pages=True))


def test_rows_that_fill_no_pages(bundles: Callable[[str], Model]) -> None:
    """A capacity between those that fill pages is rounded up; beyond the model's there is none."""
    with open_engine(bundles("int8"), CacheMemory(), capacity=700) as engine:
        assert engine.capacity == 700
        assert pages(engine).block == 256
    with open_engine(bundles("float32"), CacheMemory(), capacity=70) as engine:
        slots = engine._slots
        assert isinstance(slots, PagedPrefixes)
        assert (engine.capacity, slots.pool.layout.capacity) == (70, 128)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("4GiB", 4 << 30), ("4G", 4 << 30), ("1.5 GB", 1_500_000_000), ("64KiB", 1 << 16)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "GiB", "4 GiBs", "1e3", "4 iB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        parse_bytes(text)
