"""The endpoint, as the client from PyPI and plain HTTP see it."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from relaxd.llm import Engine, Speculation
from relaxd.llm.server import create_app
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import LETTERS, greedy
from tests.support import plain_http

if TYPE_CHECKING:
    import openai

TALK: list[Any] = [{"role": "user", "content": "Hi"}]
MODEL = "tiny"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["on", "off"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def address(language_models: dict[str, Path]) -> Iterator[str]:
    with (
        Engine.open(
            language_models["filled"],
            language_models["tokenizer"],
            sequences=2,
            waiting=3,
            threads=1,
            speculate=Speculation.parse("ngram:4"),
        ) as engine,
        serving(create_app(engine, MODEL)) as url,
    ):
        yield url


@pytest.fixture
def client(address: str) -> "Iterator[openai.OpenAI]":
    import openai  # a second, in the process that needs it alone

    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as created:
        yield created


def regex(pattern: str) -> dict[str, Any]:
    return {"type": "grammar", "grammar": {"syntax": "regex", "definition": pattern}}


def tokens_of(prompt: str, count: int) -> list[int]:
    return greedy("filled", [LETTERS.index(letter) for letter in prompt], count)


def answer_to(prompt: str, count: int) -> str:
    return "".join(LETTERS[token] for token in tokens_of(prompt, count) if token < len(LETTERS))


def test_a_completion(client: "openai.OpenAI") -> None:
    created = client.completions.create(model=MODEL, prompt="abc", max_tokens=6, temperature=0)
    assert created.choices[0].text == answer_to("abc", 6)
    assert created.choices[0].finish_reason in ("length", "stop")
    assert created.usage is not None
    assert created.usage.prompt_tokens == 3
    assert created.usage.completion_tokens == len(tokens_of("abc", 6))
    assert created.usage.prompt_tokens_details is not None
    again = [
        client.completions.create(model=MODEL, prompt="abcdefghij" * 2, max_tokens=1)
        for _ in range(2)
    ]
    assert again[1].usage is not None
    assert again[1].usage.prompt_tokens_details.cached_tokens == 19


def test_a_conversation(client: "openai.OpenAI") -> None:
    created = client.chat.completions.create(
        model=MODEL, messages=TALK, max_completion_tokens=7, temperature=0
    )
    assert created.object == "chat.completion"
    assert created.choices[0].message.role == "assistant"
    assert created.choices[0].message.content == answer_to("user: Hi|assistant: ", 7)


def test_a_stream(client: "openai.OpenAI") -> None:
    parts = list(
        client.chat.completions.create(
            model=MODEL,
            messages=TALK,
            max_tokens=7,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == answer_to("user: Hi|assistant: ", 7)
    assert parts[-2].choices[0].finish_reason in ("length", "stop")
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens == len(tokens_of("user: Hi|assistant: ", 7))
    plain = client.completions.create(
        model=MODEL, prompt=[1, 2], max_tokens=4, temperature=0, stream=True
    )
    assert "".join(part.choices[0].text for part in plain) == answer_to("bc", 4)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_as_a_schema_describes_it(client: "openai.OpenAI", stream: bool) -> None:
    created: Any = client.chat.completions.create(
        model=MODEL,
        messages=TALK,
        max_tokens=60,
        seed=3,
        stream=stream,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    )
    if stream:
        text = "".join(part.choices[0].delta.content or "" for part in created)
    else:
        text = created.choices[0].message.content
        assert created.choices[0].finish_reason == "stop"
    result = json.loads(text)
    assert sorted(result) == ["a", "b"]
    assert result["b"] in ("on", "off")


def test_answers_of_a_pattern_of_a_grammar_and_of_any_object(client: "openai.OpenAI") -> None:
    def answer(**form: Any) -> str:
        created = client.completions.create(
            model=MODEL, prompt="ab", max_tokens=50, extra_body={"response_format": form}
        )
        return created.choices[0].text

    assert re.fullmatch("x[0-9]{4}", answer(**regex("x[0-9]{4}")))
    lark = {"syntax": "lark", "definition": 'start: "a" start "b" | "c"'}
    nested = answer(type="grammar", grammar=lark)
    assert re.fullmatch("a*(cb*)?", nested)
    assert nested.count("b") <= nested.count("a")
    assert answer(type="json_object").startswith("{")
    assert answer(type="text")


def test_clients_at_once(client: "openai.OpenAI") -> None:
    prompts = ["a", "hello there", "Bb", "xyz:"]
    result: dict[str, str] = {}

    def ask(prompt: str) -> None:
        created = client.completions.create(
            model=MODEL,
            prompt=prompt,
            max_tokens=9,
            temperature=0,
            extra_body={"priority": prompts.index(prompt)},
        )
        result[prompt] = created.choices[0].text

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == {prompt: answer_to(prompt, 9) for prompt in prompts}


@pytest.mark.parametrize(
    ("settings", "code", "field"),
    [
        ({"n": 0}, "run.input", "n"),
        ({"n": 129}, "run.input", "n"),
        ({"n": 6}, "run.input", "n"),
        ({"n": 2, "best_of": 3}, "run.input", "best_of"),
        ({"logprobs": 21}, "run.input", "logprobs"),
        ({"max_tokens": 0}, "run.input", "max_tokens"),
        ({"temperature": -1}, "run.input", "temperature"),
        ({"presence_penalty": 2.5}, "run.input", "presence_penalty"),
        ({"frequency_penalty": -3}, "run.input", "frequency_penalty"),
        ({"extra_body": {"repetition_penalty": 0}}, "run.input", "repetition_penalty"),
        ({"extra_body": {"min_p": 1.5}}, "run.input", "min_p"),
        ({"extra_body": {"stop_token_ids": [64]}}, "run.input", "stop_token_ids"),
        ({"extra_body": {"stop_token_ids": ["a"]}}, "run.input", "stop_token_ids"),
        ({"logit_bias": {"64": 1}}, "run.input", "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "run.input", "logit_bias"),
        ({"logit_bias": {"5": 101}}, "run.input", "logit_bias"),
        ({"logit_bias": {"5": True}}, "run.input", "logit_bias"),
        ({"logit_bias": {"9" * 30: 1}}, "run.input", "logit_bias"),
        ({"prompt": [["a"]]}, "run.input", "prompt"),
        ({"prompt": ["a"] * 200}, "run.input", "prompt"),
        ({"prompt": "a" * 100}, "context_length_exceeded", None),
        ({"prompt": ""}, "run.input", "prompt"),
        ({"extra_body": {"response_format": {"type": "xml"}}}, "run.input", "response_format"),
        (
            {"extra_body": {"response_format": regex("(")}},
            "run.grammar",
            "response_format",
        ),
        ({"extra_body": {"priority": "high"}}, "run.input", "priority"),
    ],
)
def test_refusals(
    client: "openai.OpenAI", settings: dict[str, Any], code: str, field: str | None
) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError) as caught:
        client.completions.create(**{"model": MODEL, "prompt": "ab", **settings})
    assert (caught.value.code, caught.value.param) == (code, field)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"messages": []}', b'{"messages": [{"content": "a"}]}']
)
def test_bodies_that_are_no_requests(address: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    result = plain_http.post(f"{address}/v1/chat/completions", content=body, headers=headers)
    assert result.status_code == 400
    assert result.json()["error"]["type"] == "invalid_request_error"


def test_paths_that_are_not_there(address: str) -> None:
    result = plain_http.post(f"{address}/v1/embeddings", json={})
    assert result.status_code == 404
    assert result.json()["error"]["message"] == "POST /v1/embeddings: Not Found"
    assert plain_http.get(f"{address}/v1/completions").status_code == 405


def test_a_client_that_leaves_frees_its_position(address: str) -> None:
    ask_app = {"prompt": "ab", "max_tokens": 60, "temperature": 0, "stream": True}
    for _ in range(4):
        with httpx.stream("POST", f"{address}/v1/completions", json=ask_app) as response:
            next(response.iter_lines())
    deadline = time.monotonic() + 20
    while 'state="running"} 0.0' not in plain_http.get(f"{address}/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_client_that_leaves_within_its_request(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = httpx.URL(address)
    fields = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 99"
    head = f"POST /v1/completions HTTP/1.1\r\n{fields}\r\n\r\n{{"
    before = plain_http.get(f"{address}/metrics").text
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head.encode())
    deadline = time.monotonic() + 20
    while count_cancelled(plain_http.get(f"{address}/metrics").text) <= count_cancelled(before):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not caplog.records


def count_cancelled(metrics: str) -> float:
    lines = [line for line in metrics.splitlines() if 'total{finish="cancelled"}' in line]
    return float(lines[0].split()[1]) if lines else 0.0


def test_the_model_and_what_is_measured(client: "openai.OpenAI", address: str) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    client.completions.create(model=MODEL, prompt="ab", max_tokens=3, temperature=0)
    shown = plain_http.get(f"{address}/metrics").text
    for name in ("first_token_seconds_count", "between_tokens_seconds_count", "tokens_total"):
        assert f"relaxd_llm_{name}" in shown
    for path in ("/health", "/healthz"):
        assert plain_http.get(f"{address}{path}").json() == {"status": "ok"}


def test_drafts_are_counted_and_change_nothing(client: "openai.OpenAI", address: str) -> None:
    before = read_count(address, "accepted")
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "(abcdefgh){3}"}}
    created = client.completions.create(
        model=MODEL, prompt="ab", max_tokens=24, extra_body={"response_format": form}
    )
    assert created.choices[0].text == "abcdefgh" * 3
    assert read_count(address, "accepted") > before
    assert read_count(address, "drafted") >= read_count(address, "accepted")


def read_count(address: str, kind: str) -> float:
    shown = plain_http.get(f"{address}/metrics").text
    start = f'relaxd_llm_tokens_total{{kind="{kind}"}} '
    return sum(float(line.removeprefix(start)) for line in shown.splitlines() if start in line)


def test_too_many_requests_and_an_engine_that_is_closed(language_models: dict[str, Path]) -> None:
    with Engine.open(
        language_models["filled"], language_models["tokenizer"], sequences=1, waiting=0, threads=1
    ) as engine:
        app = create_app(engine, MODEL)
        refused = ask_app(app, "/v1/completions", {"prompt": "ab"})
    closed = ask_app(app, "/v1/completions", {"prompt": "ab"})
    assert (refused.status_code, closed.status_code) == (429, 503)
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert closed.json()["error"]["code"] == "run.closed"
    assert [1 <= int(each.headers["retry-after"]) <= 60 for each in (refused, closed)] == [True] * 2


def ask_app(app: Any, path: str, document: Any) -> httpx.Response:
    """The answer of an app without a server."""

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(path, json=document)

    return asyncio.run(post())
