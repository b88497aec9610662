"""OpenAI's responses, by its client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relaxd.llm import Engine
from relaxd.llm.generation import Finish, Generation, Piece
from relaxd.llm.reading import Reader
from relaxd.llm.sampling import Sampling
from relaxd.llm.server import create_app
from relaxd.llm.tools import FORMS
from relaxd.llm.wire.answers import Completion
from relaxd.llm.wire.responses import Reply, convert_request
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.test_tool_requests import DIGIT, TEMPLATE, with_template
from tests.support import plain_http

if TYPE_CHECKING:
    import openai

MODEL = "tiny"
TOOL: Any = {"type": "function", "name": "f", "parameters": DIGIT, "strict": True}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1]}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def address(
    language_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = with_template(tmp_path_factory.mktemp("responses"), TEMPLATE)
    with (
        Engine.open(language_models["filled"], folder, sequences=2, threads=1) as engine,
        serving(create_app(engine, MODEL)) as url,
    ):
        yield url


def test_a_text_is_that_of_the_conversation(client: "openai.OpenAI") -> None:
    talk: list[Any] = [{"role": "system", "content": "abc"}, {"role": "user", "content": "Hi"}]
    chat = client.chat.completions.create(model=MODEL, messages=talk, max_tokens=9, temperature=0)
    asked: dict[str, Any] = {"instructions": "abc", "max_output_tokens": 9, "temperature": 0}
    created = client.responses.create(model=MODEL, input="Hi", **asked)
    assert created.output_text == chat.choices[0].message.content
    assert created.status == (
        "completed" if chat.choices[0].finish_reason == "stop" else "incomplete"
    )
    assert chat.usage is not None
    assert created.usage is not None
    assert created.usage.input_tokens == chat.usage.prompt_tokens
    content = [{"type": "input_text", "text": "Hi"}]
    parts: list[Any] = [{"type": "message", "role": "user", "content": content}]
    again = client.responses.create(model=MODEL, input=parts, **asked)
    assert again.output_text == created.output_text
    with client.responses.stream(model=MODEL, input="Hi", **asked) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == f"response.{created.status}"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == created.output_text
    assert events[-1].response.output_text == created.output_text  # type: ignore[union-attr]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_output(client: "openai.OpenAI", stream: bool) -> None:
    asked: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required"}
    asked["parallel_tool_calls"] = False
    if stream:
        events: list[Any] = list(
            client.responses.create(model=MODEL, input="Hi", stream=True, **asked)
        )
        created = events[-1].response
        done = [e for e in events if e.type == "response.function_call_arguments.done"]
        deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        assert "".join(deltas) == done[0].arguments
    else:
        created = client.responses.create(model=MODEL, input="Hi", **asked)
    (call,) = created.output
    assert (call.type, call.name, created.status) == ("function_call", "f", "completed")
    assert json.loads(call.arguments)["a"] in (5, 7)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "10"}
    talk = [{"role": "user", "content": "H"}, call.model_dump(), output]
    answer = client.responses.create(model=MODEL, input=talk, max_output_tokens=4, temperature=0)
    assert answer.output_text


def test_a_text_in_a_form(client: "openai.OpenAI") -> None:
    form: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}
    created = client.responses.create(model=MODEL, input="Hi", text=form)
    assert json.loads(created.output_text) == {"a": 1}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["a"]}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [{"role": "user", "content": 5}]}, "messages"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "response_format"),
        ({"text": 5}, "text"),
        ({"max_output_tokens": 0}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
    ],
    ids=str,
)
def test_requests_that_are_refused(address: str, fields: dict[str, Any], field: str) -> None:
    body = {"model": MODEL, "input": "Hi", **fields}
    result = plain_http.post(f"{address}/v1/responses", json=body)
    assert (result.status_code, result.json()["error"]["param"]) == (400, field)


def test_items_become_messages() -> None:
    items = [
        {"role": "developer", "content": "a"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": "b"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "c"},
        {"type": "function_call", "call_id": "3", "name": "h", "arguments": "{}"},
    ]
    messages = convert_request({"input": items})["messages"]
    assert [message["role"] for message in messages] == ["system", "assistant", "tool", "assistant"]
    calls = [[call["id"] for call in message.get("tool_calls", [])] for message in messages]
    assert calls == [[], ["1", "2"], [], ["3"]]
    assert messages[2] == {"role": "tool", "content": "c", "tool_call_id": "1"}


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_thought_a_text_and_two_calls_are_items(size: int) -> None:
    hermes = next(form for form in FORMS if form.name == "hermes")
    calls = "\n".join(hermes.head + name + hermes.middle + "{}" + hermes.tail for name in "fg")
    text = f"<think>why</think>so\n{calls}"
    generation = Generation([1], Sampling(), None, frozenset())
    generation.finish = Finish.STOP
    completion, reply = Completion(generation, Reader(hermes, thinks=True)), Reply(MODEL, {})
    events = reply.begin([completion])
    for start in range(0, len(text), size):
        last = Finish.STOP if start + size >= len(text) else None
        events += reply.feed(0, completion, Piece(text[start : start + size], finish=last))
    events += reply.end([completion])
    output = events[-1]["response"]["output"]
    kinds = ["reasoning", "message", "function_call", "function_call"]
    assert [item["type"] for item in output] == kinds
    assert output[0]["content"][0]["text"] == "why"
    assert output[1]["content"][0]["text"].strip() == "so"
    assert [item["name"] for item in output[2:]] == ["f", "g"]
    added = [
        event["item"]["type"] for event in events if event["type"] == "response.output_item.added"
    ]
    assert added == kinds
    complete = Completion(generation, Reader(hermes, thinks=True), pieces=[Piece(text)])
    at_once = Reply(MODEL, {}).complete([complete])["output"]
    assert [item["type"] for item in at_once] == kinds
