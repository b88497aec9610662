"""A request that fails, or is no request, ends by itself: others go on as they would alone."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxd.errors import CapacityError, ExecutionError, GrammarError, InputError, RelaxdError
from relaxd.llm import Engine, Piece, Sampling, Speculation, speculation
from relaxd.llm.costs import Costs
from relaxd.llm.drafts import SmallModel
from relaxd.llm.generation import Finish, Generation
from relaxd.llm.sampling import Sampler
from relaxd.llm.text import Text
from relaxd.loader.state import State
from tests.relaxd.llm.models import KINDS, WORDS, greedy

TOKENS = 12
OTHERS: list[list[int]] = [[3], [7, 1, 4], [20, 21, 22, 23, 24, 25]]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(language_models: dict[str, Path], kind: str) -> Iterator[Engine]:
    bundle, words = language_models[kind], language_models["tokenizer"]
    with Engine.open(bundle, words, sequences=4, threads=1) as opened:
        yield opened


class Gate:
    """A listener that holds the engine's thread at its first piece until `open`."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, piece: Piece) -> None:
        self.reached.set()
        assert self.open.wait(60)


def start(engine: Engine, *extra: list[int]) -> tuple[list[Generation], list[Generation]]:
    """Completions of OTHERS, and of extra prompts, that enter while nothing is computed."""
    gate = Gate()
    first = engine.generate([1], Sampling(max_tokens=1), gate)
    assert gate.reached.wait(60)
    others = [engine.generate(prompt, Sampling(max_tokens=TOKENS)) for prompt in OTHERS]
    added = [engine.generate(prompt, Sampling(max_tokens=TOKENS)) for prompt in extra]
    gate.open.set()
    assert first.finish is None or first.finish is Finish.LENGTH
    return others, added


def check_others(kind: str, others: list[Generation]) -> None:
    for prompt, created in zip(OTHERS, others, strict=True):
        created.text()
        assert created.tokens == greedy(kind, prompt, TOKENS)


@pytest.mark.parametrize("token", [WORDS, WORDS + 10**6, -1, -300, 2**31, 2**70])
def test_tokens_that_the_model_lacks_are_refused(engine: Engine, kind: str, token: int) -> None:
    others, _ = start(engine)
    with pytest.raises(InputError, match="token 1 of prompt is none of the model's") as caught:
        engine.generate([2, token])
    assert caught.value.details["field"] == "prompt"
    check_others(kind, others)


@pytest.mark.parametrize("prompt", [[WORDS], [5, WORDS + 100], [*range(20), WORDS]])
def test_a_prompt_that_the_library_fails_on_ends_alone(
    engine: Engine, kind: str, prompt: list[int]
) -> None:
    engine._vocabulary = 10**9
    others, (failing,) = start(engine, prompt)
    with pytest.raises(RelaxdError):
        failing.text()
    check_others(kind, others)


def test_shared_prefixes_stay(engine: Engine, kind: str) -> None:
    engine._vocabulary = 10**9
    shared = list(range(20))
    engine.generate(shared, Sampling(max_tokens=1)).text()
    with pytest.raises(RelaxdError):
        engine.generate([*range(30, 50), WORDS]).text()
    created = engine.generate([*shared, 5], Sampling(max_tokens=4))
    created.text()
    assert created.reused == len(shared)
    assert created.tokens == greedy(kind, [*shared, 5], 4)


def test_a_member_of_a_step_that_fails_is_dropped_alone(
    engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail every call with a token that one sequence alone has."""
    common = {token for prompt in OTHERS for token in (*prompt, *greedy(kind, prompt, TOKENS))}
    prompt, poison, position = find_poison(kind, common)
    step = State.step

    def failing(self: State, tokens: Any, **where: int) -> Any:
        if any(poison in row for row in tokens):
            raise ExecutionError("the kernel fell over")
        return step(self, tokens, **where)

    monkeypatch.setattr(State, "step", failing)
    others, (broken,) = start(engine, prompt)
    with pytest.raises(ExecutionError, match="fell over"):
        broken.text()
    assert broken.tokens == greedy(kind, prompt, position + 1)
    check_others(kind, others)


def find_poison(kind: str, common: set[int]) -> tuple[list[int], int, int]:
    """A prompt, a token of its completion that is not common, and where that first stands."""
    for first in range(WORDS):
        tokens = greedy(kind, [first, 9], TOKENS)[:-1]
        for position, token in enumerate(tokens):
            if position > 1 and token not in {*common, first, 9, *tokens[:position]}:
                return [first, 9], token, position
    raise AssertionError("every completion has the same tokens")


def test_a_call_that_fails_leaves_no_rows(language_models: dict[str, Path], engine: Engine) -> None:
    state = engine.model.state(capacity=32)
    state.step([[1, 2, 3]])
    before = {name: buffer.copy() for name, buffer in state._buffers.items()}
    call = state._call(0, 1)

    def failing(arrays: Any) -> Any:
        call(arrays)
        raise ExecutionError("behind its last kernel")

    state._calls[0, 1] = failing
    with pytest.raises(ExecutionError):
        state.step([[4, 5]])
    assert state.lengths == (3,)
    for name, buffer in state._buffers.items():
        np.testing.assert_array_equal(buffer, before[name])


def test_a_listener_that_raises_ends_its_own_completion(
    engine: Engine, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(piece: Piece) -> None:
        raise KeyError("no such listener")

    created = engine.generate([9], Sampling(max_tokens=TOKENS), broken)
    others, _ = start(engine)
    check_others(kind, others)
    assert created.finish is Finish.CANCELLED
    assert "listener" in caplog.text


def test_a_sampler_that_fails_ends_its_own_completion(
    engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = Sampler.choose

    def failing(self: Sampler, logits: Any) -> int:
        if self._sampling.top_k == 3:
            raise IndexError("no token")
        return choose(self, logits)

    monkeypatch.setattr(Sampler, "choose", failing)
    others, _ = start(engine)
    created = engine.generate([9], Sampling(temperature=1.0, top_k=3))
    with pytest.raises(RelaxdError, match="IndexError: no token"):
        created.text()
    check_others(kind, others)


def test_drafts_that_fail_end_no_completion(
    language_models: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail for one completion, whose grammar may admit no token of the smaller model."""
    bundle, words = language_models[kind], language_models["tokenizer"]
    draft, failures = SmallModel.draft, list[int]()
    # A draft model that is profitable.
    costs = Costs(tuple(1 + 0.1 * row for row in range(8)))
    monkeypatch.setattr(speculation, "measure_costs", lambda *_: costs)

    def failing(self: SmallModel, generation: Generation, most: int) -> list[int]:
        if generation.prompt == (9, 9) and len(generation.tokens) > 2:
            failures.append(most)
            raise GrammarError("it admits no token")
        return draft(self, generation, most)

    monkeypatch.setattr(SmallModel, "draft", failing)
    with Engine.open(
        bundle, words, sequences=4, speculate=Speculation.parse("draft:2"), draft=bundle
    ) as engine:
        others, (failed,) = start(engine, [9, 9])
        check_others(kind, others)
        failed.text()
        assert failed.tokens == greedy(kind, [9, 9], TOKENS)
    assert failures


class Panic(BaseException):
    """Stands for the class by which Rust's panics are raised, which is no Exception."""


def test_a_panic_ends_its_own_completion(
    engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Generation.take

    def failing(self: Generation, logits: Any, room: int) -> int:
        if self.prompt == (9, 9) and len(self.tokens) == 2:
            raise Panic("no such token")
        return take(self, logits, room)

    monkeypatch.setattr(Generation, "take", failing)
    others, (broken,) = start(engine, [9, 9])
    with pytest.raises(RelaxdError, match="Panic: no such token"):
        broken.text()
    check_others(kind, others)


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-300, 1e-9])
def test_the_least_temperatures_take_the_most_probable_token(
    engine: Engine, kind: str, temperature: float
) -> None:
    others, _ = start(engine)
    created = engine.generate([9], Sampling(temperature=temperature, max_tokens=4))
    created.text()
    assert created.tokens == greedy(kind, [9], 4)
    check_others(kind, others)


def test_logits_of_which_none_is_a_number() -> None:
    sampler = Sampler(Sampling(temperature=1.0))
    with pytest.raises(ExecutionError, match="not finite"):
        sampler.choose(np.full(9, np.nan, np.float32))


def test_long_prompts_are_refused_before_they_are_tokenized(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.text is not None
    longest = engine.text.longest_token
    assert longest == len("<end>")
    fits = "a" * (engine.capacity * longest)
    with pytest.raises(CapacityError):
        # The tokenizer says so.
        engine.generate(fits)

    def never(self: Text, text: str, **how: Any) -> list[int]:
        raise AssertionError("it was tokenized")

    monkeypatch.setattr(Text, "encode", never)
    for text in (fits + "a", "\N{SNOWMAN}" * len(fits), "a" * (8 << 20)):
        with pytest.raises(CapacityError):
            engine.generate(text)
        with pytest.raises(CapacityError):
            engine.chat([{"role": "user", "content": text}])
        with pytest.raises(CapacityError):
            engine.chat([{"role": text, "content": ""}])
    with pytest.raises(CapacityError):
        engine.chat([{"role": "", "content": ""}] * (engine.capacity + 1))


@pytest.mark.parametrize("sampling", [{"seed": 2**64}, {"seed": -1}, {"stop": ("a" * 1001,)}])
def test_settings_without_a_bound_are_refused(sampling: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Sampling(**sampling)
