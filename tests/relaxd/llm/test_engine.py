"""Several requests at once: the same tokens as ONNX Runtime's, one request after another."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relaxd.contract.options import Flavour
from relaxd.errors import (
    CapacityError,
    ClosedError,
    ExecutionError,
    GrammarError,
    InputError,
    OverloadError,
)
from relaxd.llm import Engine, Grammar, Piece, Sampling
from relaxd.llm.generation import Finish
from relaxd.llm.matching import Matcher
from relaxd.loader.model import Model
from relaxd.loader.state import State
from tests.relaxd.llm.models import END, KINDS, build, greedy

CAPACITY = 40


@pytest.fixture
def engine(language_models: dict[str, Path]) -> Iterator[Engine]:
    with Engine.open(
        language_models["filled"],
        language_models["tokenizer"],
        sequences=3,
        capacity=CAPACITY,
        threads=1,
    ) as created:
        yield created


def prompts(count: int) -> list[list[int]]:
    random = np.random.default_rng(count)
    lengths = random.integers(1, 20, count)
    return [random.integers(0, END, length).tolist() for length in lengths]


@pytest.mark.parametrize("kind", KINDS)
def test_requests_at_once_get_what_each_gets_alone(
    language_models: dict[str, Path], kind: str
) -> None:
    asked = prompts(7)
    lengths = [int(length) for length in np.random.default_rng(1).integers(1, 12, len(asked))]
    with Engine.open(
        language_models[kind], language_models["tokenizer"], sequences=3, threads=1
    ) as engine:
        created = [
            engine.generate(prompt, Sampling(max_tokens=length))
            for prompt, length in zip(asked, lengths, strict=True)
        ]
        for each in created:
            each.text()
    for each, prompt, length in zip(created, asked, lengths, strict=True):
        assert each.tokens == greedy(kind, prompt, length)


def test_a_library_on_the_virtual_machine(tmp_path: Path) -> None:
    prompts = [[5, 6, 7, 8], [1, 2], [9, 9, 9, 9, 9, 9]]
    with Engine.open(build(tmp_path, "filled", Flavour.VM), sequences=3, threads=1) as engine:
        answers = [engine.generate(prompt, Sampling(max_tokens=16)) for prompt in prompts]
        results = [[piece.token for piece in answer] for answer in answers]
    assert results == [greedy("filled", prompt, 16) for prompt in prompts]


def test_long_prompts_come_in_pieces(language_models: dict[str, Path]) -> None:
    prompt = (prompts(3)[0] * 30)[:30]
    with Engine.open(language_models["filled"], threads=1) as full:
        # The model takes 24 tokens a call at most.
        assert full._piece == 24
        model = full.model
        result = full.generate(prompt, Sampling(max_tokens=4))
        result.text()
    with Engine(model, piece=7) as engine:
        pieces = engine.generate(prompt, Sampling(max_tokens=4))
        pieces.text()
    assert result.tokens == pieces.tokens == greedy("filled", prompt, 4)


def test_the_seed_decides_what_is_drawn(engine: Engine) -> None:
    sampled = Sampling(temperature=1, top_k=20, top_p=0.9, seed=5, max_tokens=12)
    one = engine.generate("Hello", sampled)
    first = one.text()
    assert engine.generate("Hello", sampled).text() == first
    assert engine.generate("Hello", Sampling(1.0, seed=6, max_tokens=12)).text() != first


def test_an_answer_ends_where_the_caches_are_full(engine: Engine) -> None:
    prompt = prompts(2)[0][:9]
    created = engine.generate(prompt)
    created.text()
    assert created.tokens == greedy("filled", prompt, len(created.tokens))
    if created.tokens[-1] != END:
        assert created.finish is Finish.LENGTH
        # The last token needs no place: nothing is computed from it.
        assert len(prompt) + len(created.tokens) == CAPACITY + 1


def test_what_does_not_fit_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(CapacityError, match="41 tokens are too many: there is room for 40"):
        engine.generate([1] * CAPACITY)
    with pytest.raises(InputError, match="the prompt is empty"):
        engine.generate("")


class Slow:
    """Lets the engine's thread go on, token by token."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.go = threading.Semaphore(0)
        self.came = threading.Semaphore(0)

    def __call__(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.came.release()
        self.go.acquire()


def test_cancelling_makes_room_for_the_next(engine: Engine) -> None:
    slow = Slow()
    created = engine.generate("abc", Sampling(max_tokens=30), slow)
    slow.came.acquire()
    others = [engine.generate([index], Sampling(max_tokens=5)) for index in range(4)]
    created.cancel()
    for _ in range(40):
        slow.go.release()
    texts = [other.text() for other in others]
    assert len(texts) == 4
    for index, other in enumerate(others):
        assert other.tokens == greedy("filled", [index], 5)
    assert created.finish is Finish.CANCELLED
    assert len(slow.pieces) <= 4


def test_too_many_that_wait(language_models: dict[str, Path]) -> None:
    slow = Slow()
    with Engine.open(language_models["filled"], sequences=1, waiting=2, threads=1) as engine:
        engine.generate([1], Sampling(max_tokens=3), slow)
        slow.came.acquire()
        waiting = [engine.generate([2], Sampling(max_tokens=1)) for _ in range(2)]
        assert engine.load == (1, 2)
        with pytest.raises(OverloadError, match="2 requests wait already") as caught:
            engine.generate([3])
        assert 1 <= caught.value.retry_after <= 60
        for _ in range(9):
            slow.go.release()
        assert [one.tokens for one in waiting if one.text() is not None] == [
            greedy("filled", [2], 1)
        ] * 2
    with pytest.raises(ClosedError, match="closed"):
        engine.generate([1])


def test_closing_ends_what_runs_and_what_waits(language_models: dict[str, Path]) -> None:
    slow = Slow()
    engine = Engine.open(language_models["filled"], sequences=1, threads=1)
    running = engine.generate([1], Sampling(max_tokens=20), slow)
    slow.came.acquire()
    waiting = engine.generate([2])
    for _ in range(40):
        slow.go.release()
    engine.close()
    waiting.text()
    assert waiting.finish is not None
    assert running.finish is not None


def test_a_failure_ends_its_answers_and_no_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = State.step

    def failing(self: State, tokens: object, **where: int) -> object:
        raise ExecutionError("the kernel fell over")

    monkeypatch.setattr(State, "step", failing)
    with pytest.raises(ExecutionError, match="fell over"):
        engine.generate("ab").text()
    monkeypatch.setattr(State, "step", step)
    created = engine.generate([4, 5], Sampling(max_tokens=3))
    created.text()
    assert created.tokens == greedy("filled", [4, 5], 3)


def test_more_sequences_than_the_batch_admits(language_models: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="5 sequences are more than the model's batch admits, 4"):
        Engine.open(language_models["filled"], sequences=5)


def test_text_takes_a_tokenizer(language_models: dict[str, Path]) -> None:
    with Engine.open(language_models["filled"], threads=1) as engine:
        assert isinstance(engine.model, Model)
        with pytest.raises(InputError, match="no tokenizer"):
            engine.generate("abc")
        with pytest.raises(InputError, match="no tokenizer"):
            engine.generate([1], Sampling(stop=("a",)))
        reason = {"tokenizer.json": "the pre-tokenizer 'x' is not known"}
        engine.model.manifest = replace(engine.model.manifest, left_out=reason)
        with pytest.raises(InputError, match="no tokenizer: the pre-tokenizer 'x' is not known"):
            engine.generate("abc")


def test_the_callback_by_its_name_of_before(engine: Engine) -> None:
    tokens, ended = list[int | None](), threading.Event()

    def record(piece: Piece) -> None:
        tokens.append(piece.token)
        if piece.finish is not None:
            ended.set()

    with pytest.warns(DeprecationWarning, match="heard is on_token now"):
        engine.generate([1, 2], Sampling(max_tokens=3), heard=record)
    assert ended.wait(60)
    assert [token for token in tokens if token is not None] == greedy("filled", [1, 2], 3)


def test_stops(engine: Engine) -> None:
    prompt = prompts(4)[1]
    full = engine.generate(prompt, Sampling(max_tokens=8)).text()
    assert len(full) > 4
    stop = full[2:4]
    created = engine.generate(prompt, Sampling(stop=(stop,)))
    assert created.text() == full[: full.find(stop)]
    assert created.finish is Finish.STOP


def test_a_conversation(engine: Engine) -> None:
    assert engine.text is not None
    talk: list[dict[str, object]] = [{"role": "user", "content": "Hey"}]
    prompt = engine.text.encode("user: Hey|assistant: ", special=False)
    created = engine.chat(talk, Sampling(max_tokens=5))
    created.text()
    assert created.tokens == greedy("filled", prompt, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_important_requests_preempt_others_which_go_on_later(
    language_models: dict[str, Path], kind: str
) -> None:
    slow = Slow()
    asked = prompts(4)
    words = language_models["tokenizer"]
    with Engine.open(language_models[kind], words, sequences=2, threads=1) as engine:
        low = [engine.generate(asked[0], Sampling(max_tokens=9), slow, priority=-1)]
        low.append(engine.generate(asked[1], Sampling(max_tokens=9)))
        for _ in range(4):
            slow.came.acquire()
            slow.go.release()
        high = [engine.generate(prompt, Sampling(max_tokens=5), priority=1) for prompt in asked[2:]]
        for _ in range(40):
            slow.go.release()
        for created in high:
            created.text()
        low[1].text()
        while low[0].finish is None:
            slow.came.acquire()
    assert [created.preempted for created in high] == [0, 0]
    assert low[0].preempted == 1
    for created, prompt, length in zip([*low, *high], asked, (9, 9, 5, 5), strict=True):
        assert created.tokens == greedy(kind, prompt, length)


def test_what_is_over_is_not_preempted(language_models: dict[str, Path]) -> None:
    slow = Slow()
    with Engine.open(language_models["filled"], sequences=1, threads=1) as engine:
        low = engine.generate([1], Sampling(max_tokens=3), slow)
        for _ in range(2):
            slow.came.acquire()
            slow.go.release()
        # It ends, and its listener has not gone on yet.
        slow.came.acquire()
        high = engine.generate([2], Sampling(max_tokens=2), priority=1)
        slow.go.release()
        high.text()
        for _ in range(9):
            slow.go.release()
    assert (low.preempted, len(low.tokens), low.finish) == (0, 3, Finish.LENGTH)


def test_a_prompt_that_enters_gives_way_too(language_models: dict[str, Path]) -> None:
    slow = Slow()
    long = (prompts(3)[0] * 40)[:40]
    words = language_models["tokenizer"]
    with Engine.open(language_models["filled"], words, sequences=2, threads=1) as engine:
        running = engine.generate([1], Sampling(max_tokens=8), slow, priority=5)
        slow.came.acquire()
        entering = engine.generate(long, Sampling(max_tokens=3))
        # The next token but one comes behind the first 24 tokens of the prompt.
        for _ in range(2):
            slow.go.release()
            slow.came.acquire()
        high = engine.generate([2, 3], Sampling(max_tokens=3), priority=9)
        for _ in range(20):
            slow.go.release()
        high.text()
        entering.text()
    assert entering.preempted == 1
    assert running.tokens == greedy("filled", [1], 8)
    assert high.tokens == greedy("filled", [2, 3], 3)
    assert entering.tokens == greedy("filled", long, 3)


def test_what_a_grammar_admits_beside_free_answers(engine: Engine) -> None:
    asked = prompts(6)
    pattern = Grammar.regex("[a-d]{3}[0-9]{2}")
    bound = Sampling(grammar=pattern, max_tokens=20)
    created = [
        engine.generate(prompt, bound if index % 2 else Sampling(max_tokens=6))
        for index, prompt in enumerate(asked)
    ]
    texts = [each.text() for each in created]
    for index, (each, prompt) in enumerate(zip(created, asked, strict=True)):
        if index % 2:
            assert re.fullmatch("[a-d]{3}[0-9]{2}", texts[index])
            assert each.finish is Finish.STOP
        else:
            assert each.tokens == greedy("filled", prompt, 6)


def test_an_answer_whose_grammar_fails_ends_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = engine.generate(prompts(3)[0], Sampling(max_tokens=6))

    def failing(self: Matcher, scores: object) -> object:
        raise GrammarError("it grew too complex")

    monkeypatch.setattr(Matcher, "mask", failing)
    with pytest.raises(GrammarError, match="too complex"):
        engine.generate([1], Sampling(grammar=Grammar.regex("a*"))).text()
    free.text()
    assert free.tokens == greedy("filled", prompts(3)[0], 6)
    with pytest.raises(GrammarError, match="unclosed"):
        engine.generate([1], Sampling(grammar=Grammar.regex("(")))


def test_those_that_leave_while_they_wait_make_room(language_models: dict[str, Path]) -> None:
    slow = Slow()
    with Engine.open(language_models["filled"], sequences=1, waiting=1, threads=1) as engine:
        engine.generate([1], Sampling(max_tokens=9), slow)
        slow.came.acquire()
        engine.generate([2]).cancel()
        for _ in range(2):
            slow.go.release()
            slow.came.acquire()
        assert engine.load == (1, 0)
        engine.generate([3]).cancel()
        for _ in range(20):
            slow.go.release()
