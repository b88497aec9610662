"""Draft tokens do not change completions, and are made where they are profitable."""

from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.errors import InputError
from relaxd.llm import Engine, Grammar, Sampling, Source, Speculation, speculation
from relaxd.llm.costs import Costs
from relaxd.llm.generation import Generation
from relaxd.llm.speculation import Speculator
from relaxd.loader.model import Model
from tests.relaxd.llm.models import END, KINDS, greedy

NGRAM = Speculation(Source.NGRAM, 4)
DRAFT = Speculation(Source.DRAFT, 3)
COSTS = Costs(tuple(1 + 0.15 * row for row in range(8)))
REPEATED = [7, 8, 9, 10] * 4


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls take what they are said to take, whatever else the machine does."""
    monkeypatch.setattr(speculation, "measure_costs", lambda *_: COSTS)


class Oracle:
    """Knows the answers, and is wrong at every third place."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]]) -> None:
        self._answers = answers

    def draft(self, created: Generation, most: int) -> list[int]:
        begun = len(created.tokens)
        known = self._answers[created.prompt][begun : begun + most]
        return [token if (begun + i) % 3 else (token + 1) % END for i, token in enumerate(known, 1)]

    def forget(self, created: Generation) -> None:
        pass


def foresee(engine: Engine, asked: list[list[int]], answers: list[list[int]]) -> None:
    """Lets an engine guess what is known."""
    known = {tuple(prompt): answer for prompt, answer in zip(asked, answers, strict=True)}
    batched = engine._batch._slots.batched
    engine._batch._speculator = Speculator(4, Oracle(known), COSTS, batched=batched)


def prompts(count: int) -> list[list[int]]:
    draw = np.random.default_rng(count)
    return [
        [*REPEATED[: int(draw.integers(3, 16))], *draw.integers(0, END, 3).tolist()]
        for _ in range(count)
    ]


@pytest.fixture(params=KINDS)
def loaded(request: pytest.FixtureRequest, language_models: dict[str, Path]) -> tuple[str, Model]:
    return request.param, relaxd.load(language_models[request.param], threads=1)


@pytest.mark.parametrize("source", ["ngram", "draft", "oracle"])
def test_greedy_completions_are_those_without_draft_tokens(
    loaded: tuple[str, Model], source: str
) -> None:
    kind, model = loaded
    asked = prompts(6)
    want = [greedy(kind, prompt, 20) for prompt in asked]
    speculate = DRAFT if source == "draft" else NGRAM
    draft = model if source == "draft" else None
    with Engine(model, sequences=2, speculate=speculate, draft=draft) as engine:
        if source == "oracle":
            foresee(engine, asked, want)
        created = [engine.generate(prompt, Sampling(max_tokens=20)) for prompt in asked]
        for each in created:
            each.text()
    for each, answer in zip(created, want, strict=True):
        assert each.tokens[: len(answer)] == answer
    drafted, accepted = (
        sum(each.drafted for each in created),
        sum(each.accepted for each in created),
    )
    assert 0 <= accepted <= drafted
    if source == "draft":
        # Its model is the same; what stands behind an end was guessed too.
        assert accepted > 0.8 * drafted > 0
    if source == "oracle":
        assert 0 < accepted < drafted


@pytest.mark.parametrize("source", ["oracle", "draft"])
def test_drawn_answers_are_those_of_the_same_seed(loaded: tuple[str, Model], source: str) -> None:
    _, model = loaded
    asked = prompts(6)
    draft_tokens = (NGRAM, None) if source == "oracle" else (DRAFT, model)
    sampled: list[list[list[int]]] = []
    accepted = 0
    for speculate, draft in ((None, None), draft_tokens):
        with Engine(model, sequences=2, speculate=speculate, draft=draft) as engine:
            if source == "oracle" and sampled:
                foresee(engine, asked, sampled[0])
            created = [
                engine.generate(prompt, Sampling(0.7, top_k=8, seed=seed, max_tokens=20))
                for seed, prompt in enumerate(asked)
            ]
            for each in created:
                each.text()
        sampled.append([each.tokens for each in created])
        accepted = sum(each.accepted for each in created)
    assert sampled[0] == sampled[1]
    assert accepted > 20


def test_drafts_keep_to_grammars(language_models: dict[str, Path]) -> None:
    words = language_models["tokenizer"]
    fixed = Grammar.regex("the same (text|word) again, the same (text|word) again")
    answers = []
    for speculate in (None, NGRAM):
        with Engine.open(
            language_models["filled"], words, threads=1, sequences=2, speculate=speculate
        ) as engine:
            bound = Sampling(grammar=fixed, max_tokens=60)
            created = [engine.generate(prompt, bound) for prompt in ("the same", "ab", "c")]
            answers.append([each.text() for each in created])
    assert answers[0] == answers[1]
    assert created[0].accepted > 10


def test_answers_end_within_drafts(language_models: dict[str, Path]) -> None:
    words = language_models["tokenizer"]
    ends = []
    for speculate in (None, NGRAM):
        with Engine.open(
            language_models["filled"], words, threads=1, capacity=40, speculate=speculate
        ) as engine:
            bound = Grammar.regex("(abcd){6,}")
            created = [
                engine.generate("abcdabcd", Sampling(grammar=bound, **settings))
                for settings in ({}, {"max_tokens": 7}, {"stop": ("cda",)})
            ]
            ends.append([(each.text(), each.finish, each.tokens) for each in created])
        # The thread has ended, and with it the step that gave the last tokens.
        assert engine._batch._speculator is None or not engine._batch._speculator._rates
    assert ends[0] == ends[1]
    assert sum(each.accepted for each in created) > 5, ends
    assert len(created[1].tokens) <= 7


def test_what_is_wrong_all_the_time_is_not_drafted_for_a_while() -> None:
    class Wrong:
        def draft(self, created: Generation, most: int) -> list[int]:
            return [0] * most

        def forget(self, created: Generation) -> None:
            pass

    speculator = Speculator(4, Wrong(), COSTS, batched=True)
    created = Generation([1], Sampling(), None, frozenset())
    counts = []
    for _ in range(100):
        (draft,) = speculator.draft_tokens([created], 9)
        counts.append(len(draft))
        speculator.judge(created, len(draft), 0)
    assert counts[0] == 2
    assert sum(count > 0 for count in counts) < 15


def test_what_cannot_speculate(language_models: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="ngram:N or draft:N"):
        Speculation.parse("medusa:4")
    with pytest.raises(InputError, match="ngram:N or draft:N"):
        Speculation.parse("ngram:x")
    with pytest.raises(InputError, match="1 to 16"):
        Speculation.parse("ngram:99")
    assert Speculation.parse("ngram") == Speculation.parse("ngram:4") == NGRAM
    with pytest.raises(InputError, match="needs a draft model"):
        Engine.open(language_models["filled"], speculate=DRAFT)
    with pytest.raises(InputError, match="needs a draft model"):
        Engine.open(language_models["filled"], draft=language_models["grown"], speculate=NGRAM)
