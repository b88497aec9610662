"""Fields of requests: the answers are those of a sampler over ONNX Runtime's logits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from relaxd.errors import InputError
from relaxd.llm import Engine, Sampling, Speculation
from relaxd.llm.server import create_app
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import END, KINDS, LETTERS
from tests.relaxd.llm.test_penalties import expect
from tests.support.models.decoders import Original

if TYPE_CHECKING:
    import openai

MODEL, PROMPT, TOKENS = "tiny", "hello there", 12
FIELDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0, "presence_penalty": 1.5},
    {"temperature": 0, "frequency_penalty": -2},
    {"temperature": 0, "repetition_penalty": 3.0},
    {"temperature": 0, "logit_bias": {"5": 100}},
    {"temperature": 0, "logit_bias": {"5": 90, "7": 90.5}, "frequency_penalty": 2},
    {"temperature": 2, "seed": 1, "min_p": 0.1},
    {"temperature": 1.5, "seed": 2, "top_k": 5, "top_p": 0.8, "min_p": 0.05},
    {"temperature": 1, "seed": 3, "top_k": -1, "presence_penalty": -1, "repetition_penalty": 0.8},
)


@pytest.fixture(scope="module")
def address(language_models: dict[str, Path]) -> Iterator[str]:
    with (
        Engine.open(
            language_models["filled"],
            language_models["tokenizer"],
            sequences=3,
            threads=1,
            speculate=Speculation.parse("ngram:4"),
        ) as engine,
        serving(create_app(engine, MODEL)) as url,
    ):
        yield url


def encode(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def spell(tokens: list[int]) -> str:
    return "".join(LETTERS[token] for token in tokens if token < len(LETTERS))


class Reference:
    """A sampler in numpy over ONNX Runtime's logits; `rows` has those of each token."""

    def __init__(self, prompt: list[int], fields: dict[str, Any], count: int = TOKENS) -> None:
        original = Original(KINDS["filled"][0]())
        self.prompt_rows = np.array(original.step(prompt))
        self.tokens: list[int] = []
        self.rows = [self.prompt_rows[-1]]
        draw = np.random.default_rng(fields.get("seed"))
        while True:
            self.tokens.append(choose(self.rows[-1], fields, prompt, self.tokens, draw))
            if len(self.tokens) == count or self.tokens[-1] == END:
                return
            self.rows.append(original.step(self.tokens[-1:])[-1])


def choose(
    logits: np.ndarray, fields: dict[str, Any], prompt: list[int], answer: list[int], draw: Any
) -> int:
    wanted = Sampling(
        logit_bias={int(token): bias for token, bias in fields.get("logit_bias", {}).items()},
        repetition_penalty=fields.get("repetition_penalty", 1),
        frequency_penalty=fields.get("frequency_penalty", 0),
        presence_penalty=fields.get("presence_penalty", 0),
    )
    values = np.array(expect(logits, wanted, prompt, answer))
    if fields["temperature"] == 0:
        return int(values.argmax())
    order = np.argsort(-values, kind="stable")
    powers = np.exp((values[order] - values.max()) / fields["temperature"])
    allowed = powers >= fields.get("min_p", 0)
    if fields.get("top_k", -1) > 0:
        allowed &= np.arange(len(order)) < fields["top_k"]
    chances = powers * allowed / (powers * allowed).sum()
    before = np.concatenate([[0], np.cumsum(chances)[:-1]])
    chances[before >= fields.get("top_p", 1)] = 0
    return int(order[np.searchsorted(np.cumsum(chances / chances.sum()), draw.random(), "right")])


def complete(client: "openai.OpenAI", fields: dict[str, Any], prompt: Any = PROMPT) -> Any:
    body = {"max_tokens": TOKENS, **fields}
    return client.completions.create(model=MODEL, prompt=prompt, extra_body=body)


def test_each_answer_is_the_references_alone_and_in_company(client: "openai.OpenAI") -> None:
    expected = [spell(Reference(encode(PROMPT), fields).tokens) for fields in FIELDS]
    assert len(set(expected)) == len(expected)
    alone = [complete(client, fields).choices[0].text for fields in FIELDS]
    assert alone == expected
    with ThreadPoolExecutor(len(FIELDS)) as pool:
        company = list(pool.map(lambda fields: complete(client, fields), FIELDS * 2))
    assert [created.choices[0].text for created in company] == expected * 2


def test_n_completions_have_the_seeds_that_follow(client: "openai.OpenAI") -> None:
    fields = {"temperature": 2, "seed": 5}
    expected = [spell(Reference(encode(PROMPT), {**fields, "seed": 5 + i}).tokens) for i in (0, 1)]
    created = complete(client, {**fields, "n": 2})
    assert [choice.text for choice in created.choices] == expected
    assert [choice.index for choice in created.choices] == [0, 1]
    assert created.usage.prompt_tokens == len(PROMPT)
    texts = ["", ""]
    stream = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=TOKENS, temperature=2, seed=5, n=2, stream=True
    )
    for part in stream:
        texts[part.choices[0].index] += part.choices[0].text
    assert texts == expected
    talk: list[Any] = [{"role": "user", "content": "Hi"}]
    chat = client.chat.completions.create(model=MODEL, messages=talk, n=3, max_tokens=3, seed=1)
    assert [choice.index for choice in chat.choices] == [0, 1, 2]


def test_several_prompts(client: "openai.OpenAI") -> None:
    prompts = ["abc", "some words", "x"]
    created = complete(client, {"temperature": 0, "n": 2}, prompts)
    fields = {"temperature": 0}
    expected = [spell(Reference(encode(prompt), fields).tokens) for prompt in prompts]
    assert [choice.text for choice in created.choices] == [text for text in expected for _ in "ab"]
    assert created.usage.prompt_tokens == sum(map(len, prompts))
    as_tokens = complete(client, fields, [encode(prompt) for prompt in prompts])
    assert [choice.text for choice in as_tokens.choices] == expected


def measure(rows: Any) -> np.ndarray:
    values = np.asarray(rows, np.float64)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def test_logprobs_are_the_models_own(client: "openai.OpenAI") -> None:
    fields = {"temperature": 0, "presence_penalty": 1.5}
    reference = Reference(encode(PROMPT), fields)
    created = complete(client, {**fields, "logprobs": 3})
    scores = created.choices[0].logprobs
    shown = [token for token in reference.tokens if token != END]
    expected = measure(reference.rows)[range(len(shown)), shown]
    assert scores.tokens == [LETTERS[token] for token in shown]
    np.testing.assert_allclose(scores.token_logprobs, expected, atol=1e-4)
    assert scores.text_offset == list(range(len(shown)))
    assert all(len(top) == 3 for top in scores.top_logprobs)
    best = measure(reference.rows).max(-1)[: len(shown)]
    np.testing.assert_allclose([max(top.values()) for top in scores.top_logprobs], best, atol=1e-4)
    assert complete(client, {**fields, "logprobs": 0}).choices[0].logprobs.top_logprobs[0] == {}


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_a_conversation(client: "openai.OpenAI", stream: bool) -> None:
    talk: list[Any] = [{"role": "user", "content": "Hi"}]
    created: Any = client.chat.completions.create(
        model=MODEL,
        messages=talk,
        max_tokens=5,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        stream=stream,
    )
    choices = [part.choices[0] for part in created] if stream else created.choices
    scores = [each for choice in choices if choice.logprobs for each in choice.logprobs.content]
    reference = Reference(encode("user: Hi|assistant: "), {"temperature": 0}, 5)
    expected = measure(reference.rows).max(-1)
    assert [each.token for each in scores] == [LETTERS[token] for token in reference.tokens]
    np.testing.assert_allclose([each.logprob for each in scores], expected, atol=1e-4)
    for each in scores:
        assert bytes(each.bytes).decode() == each.token == each.top_logprobs[0].token
        assert len(each.top_logprobs) == 2


@pytest.mark.parametrize("prompt", [PROMPT * 3, "ab", encode(PROMPT)])
@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_has_the_prompts_logprobs(
    client: "openai.OpenAI", prompt: Any, stream: bool
) -> None:
    text = prompt if isinstance(prompt, str) else spell(prompt)
    fields = {"temperature": 0, "echo": True, "max_tokens": 2}
    reference = Reference(encode(text), fields, 2)
    assert complete(client, fields, prompt).choices[0].text == text + spell(reference.tokens)
    body = {**fields, "logprobs": 1, "stream": stream}
    # The prompt is cached by now, and its logprobs have to be computed all the same.
    created: Any = client.completions.create(
        model=MODEL, prompt=prompt, extra_body=body, stream=stream
    )
    choices = [part.choices[0] for part in created] if stream else created.choices
    assert "".join(choice.text for choice in choices) == text + spell(reference.tokens)
    scores = [choice.logprobs for choice in choices if choice.logprobs]
    values = [value for each in scores for value in each.token_logprobs]
    shown = [token for token in reference.tokens if token != END]
    rows = [*measure(reference.prompt_rows[:-1]), *measure(reference.rows)]
    expected = [row[token] for row, token in zip(rows, [*encode(text)[1:], *shown], strict=False)]
    assert values[0] is None
    np.testing.assert_allclose(values[1:], expected, atol=1e-4)
    assert [word for each in scores for word in each.tokens] == [*text, *spell(shown)]
    offsets = [offset for each in scores for offset in each.text_offset]
    assert offsets == list(range(len(values)))


def test_stop_tokens_end_a_text_without_being_part_of_it(client: "openai.OpenAI") -> None:
    tokens = Reference(encode(PROMPT), {"temperature": 0}).tokens
    ends = tokens.index(tokens[4])
    created = complete(client, {"temperature": 0, "stop_token_ids": [tokens[4]], "logprobs": 0})
    assert created.choices[0].text == spell(tokens[:ends])
    assert created.choices[0].finish_reason == "stop"
    assert len(created.choices[0].logprobs.tokens) == ends


def test_a_library_without_the_prompts_logits_refuses_them(
    language_models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(language_models["filled"], language_models["tokenizer"], threads=1) as engine:
        monkeypatch.setattr(engine, "_last_logits_alone", True)
        with pytest.raises(InputError, match="logits=all"):
            engine.generate("ab", Sampling(logprobs=1, prompt_logprobs=True))
