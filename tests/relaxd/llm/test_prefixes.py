"""Prompts that begin alike: which rows are taken, and that answers are those of prompts alone."""

from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.llm import Engine, Sampling
from relaxd.llm.adapters import LoadedAdapter
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.slots import Logits, slots_of
from relaxd.loader.model import Model
from tests.relaxd.llm.models import END, KINDS, greedy

SHARED = [(7 * index + 3) % END for index in range(24)]


class Counted:
    """Slots that count calls, and have no KV cache."""

    capacity = 99
    batched = True

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls: list[tuple[str, int, int, int]] = []
        self.adapters = [0] * count

    def extend(self, slot: int, tokens: list[int]) -> Logits:
        return np.zeros((len(tokens), 1))

    def step(self, tokens: list[list[int]]) -> list[Logits]:
        return [np.zeros((len(own), 1)) for own in tokens]

    def swap(self, lhs: int, rhs: int) -> None:
        self.calls.append(("swap", lhs, rhs, 0))

    def copy(self, source: int, target: int, length: int) -> None:
        self.calls.append(("copy", source, target, length))

    def truncate(self, slot: int, length: int) -> None:
        self.calls.append(("truncate", slot, slot, length))

    def adapt(self, slot: int, adapter: int) -> None:
        self.adapters[slot] = adapter

    def length(self, slot: int) -> int:
        raise NotImplementedError


def fill(count: int, *sequences: list[int]) -> tuple[Prefixes, list[tuple[str, int, int, int]]]:
    """Slots of which the first hold sequences, in their order of use."""
    slots = Counted(count)
    positions = Prefixes(slots)
    for slot, tokens in enumerate(sequences):
        positions.begin(slot, tokens)
        positions.extend(slot, tokens)
        positions.end(slot)
    slots.calls.clear()
    return positions, slots.calls


def test_a_running_sequence_gives_its_rows() -> None:
    positions, calls = fill(3, SHARED)
    assert positions.begin(1, [*SHARED[:20], 1, 2, 3]) == 20
    assert calls == [("copy", 0, 1, 20)]
    assert (positions.length(0), positions.length(1)) == (24, 20)


def test_the_last_token_is_computed_again() -> None:
    positions, calls = fill(3, SHARED)
    assert positions.begin(1, SHARED) == 23
    assert calls == [("copy", 0, 1, 23)]


def test_what_goes_on_is_not_copied() -> None:
    positions, calls = fill(4, [1] * 30, [2] * 30, SHARED)
    assert positions.begin(1, [*SHARED, 5]) == 24
    assert calls == [("swap", 2, 1, 0)]
    assert [positions.length(slot) for slot in range(4)] == [30, 24, 30, 0]


def test_what_is_shared_in_part_stays_where_there_is_another_slot() -> None:
    positions, calls = fill(3, SHARED)
    assert positions.begin(0, [*SHARED[:16], 9, 9]) == 16
    assert calls == [("copy", 0, 1, 24), ("truncate", 0, 0, 16)]
    positions, calls = fill(1, SHARED)
    assert positions.begin(0, [*SHARED[:16], 9, 9]) == 16
    assert calls == [("truncate", 0, 0, 16)]


def test_a_new_prompt_takes_the_slot_that_was_used_longest_ago() -> None:
    positions, calls = fill(3, [1] * 20, [2] * 20, [3] * 20)
    assert positions.begin(0, [1] * 18) == 17
    # The second was used longest ago: the first's own tail goes there.
    assert calls == [("copy", 0, 1, 20), ("truncate", 0, 0, 17)]
    positions, calls = fill(3, [1] * 20, [2] * 20, [3] * 20)
    assert positions.begin(1, [4] * 20) == 0
    assert calls == [("truncate", 1, 1, 0)]


def test_tokens_are_shared_by_sequences_of_one_adapter() -> None:
    slots = Counted(6)
    positions = Prefixes(slots)
    first, second, again = (
        LoadedAdapter(name, Path(name), number, key)
        for name, number, key in (("a", 1, 1), ("b", 2, 2), ("a", 1, 3))
    )
    for slot, adapter in enumerate((None, first, second)):
        assert positions.begin(slot, SHARED, adapter=adapter) == 0
        positions.extend(slot, SHARED)
    # One that was loaded again in the same slot computes something else.
    assert positions.begin(3, [*SHARED, 1], adapter=again) == 0
    positions.extend(3, [*SHARED, 1])
    assert [positions.begin(4, [*SHARED, 1], adapter=each) for each in (first, second, None)] == [
        24
    ] * 3
    assert slots.adapters[:5] == [0, 1, 2, 1, 0]
    positions.swap(1, 2)
    assert positions.begin(4, [*SHARED, 1], adapter=first) == 24
    assert slots.calls[-1] == ("copy", 2, 4, 24)


def test_little_is_not_shared_and_nothing_where_it_is_not_wanted() -> None:
    positions, _ = fill(3, SHARED)
    assert positions.begin(1, [*SHARED[:15], *([1] * 9)]) == 0
    assert positions.begin(1, [4]) == 0
    alone = Prefixes(Counted(2), share=False)
    alone.extend(0, SHARED)
    assert alone.begin(1, SHARED) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_tokens_whatever_happened_before(
    language_models: dict[str, Path], kind: str
) -> None:
    model = relaxd.load(language_models[kind], threads=1)
    draw = np.random.default_rng(5)
    positions = Prefixes(slots_of(model, 3, 64))
    running: list[list[int]] = []
    reused = 0
    for _ in range(60):
        if running and (len(running) == 3 or draw.random() < 0.4):
            slot, last = int(draw.integers(len(running))), len(running) - 1
            positions.end(slot)
            positions.swap(last, slot)
            running[slot] = running[last]
            running.pop()
            continue
        known = SHARED[: int(draw.integers(12, 25))]
        prompt = [*known, *draw.integers(0, END, int(draw.integers(1, 5))).tolist()]
        done = positions.begin(len(running), prompt)
        reused += done
        logits = positions.extend(len(running), prompt[done:])[-1]
        running.append(prompt)
        np.testing.assert_allclose(logits, behind(model, prompt), atol=1e-3)
        tokens = draw.integers(0, END, len(running)).tolist()
        steps = [scores[-1] for scores in positions.step([[token] for token in tokens])]
        for each, token, result in zip(running, tokens, steps, strict=True):
            each.append(token)
            np.testing.assert_allclose(result, behind(model, each), atol=1e-3)
    assert reused > 300


def behind(model: Model, tokens: list[int]) -> np.ndarray:
    """The scores behind tokens that a state of their own computes."""
    state = model.state(capacity=64)
    for token in tokens:
        logits = state.step([[token]])["logits"]
    return np.asarray(logits[0, -1])


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_prompts_alone(language_models: dict[str, Path], kind: str) -> None:
    prompts = [[*SHARED, index, 2 * index] for index in range(6)]
    words = language_models["tokenizer"]
    with Engine.open(language_models[kind], words, threads=1, sequences=3) as engine:
        created = [engine.generate(prompt, Sampling(max_tokens=8)) for prompt in prompts]
        for each, prompt in zip(created, prompts, strict=True):
            each.text()
            assert each.tokens == greedy(kind, prompt, 8)
        assert [each.reused for each in created] == [0] + [24] * 5
        # A conversation goes on behind its answer, whose last token was not computed.
        longer = [*prompts[5], *created[5].tokens, 4]
        follow = engine.generate(longer, Sampling(max_tokens=4))
        follow.text()
        assert follow.tokens == greedy(kind, longer, 4)
        assert follow.reused == len(longer) - 2
    with Engine(engine.model, sharing=False) as engine:
        plain = [engine.generate(prompt, Sampling(max_tokens=2)) for prompt in prompts[:2]]
        for each in plain:
            each.text()
        assert [each.reused for each in plain] == [0, 0]
