"""Tools over HTTP: calls that have to be made, and conversations that go on with their results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relaxd.llm import Engine
from relaxd.llm.server import create_app
from relaxd.llm.text import Text
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import tokenizer
from tests.support import plain_http

if TYPE_CHECKING:
    import openai

MODEL = "tiny"
TEMPLATE = (
    '{# calls have "parameters" #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}'
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}"
)
TALK: list[Any] = [{"role": "user", "content": "Hi"}]
DIGIT = {
    "type": "object",
    "properties": {"a": {"enum": [5, 7]}},
    "required": ["a"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


REQUIRED = {"tool_choice": "required"}
HALF = function("f", arguments='{"a": "\\ud800"}')
TOOLS: list[Any] = [
    function("f", description="d", parameters=DIGIT),
    function("g", parameters=NOTHING),
]


def with_template(folder: Path, template: str) -> Path:
    tokenizer(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return folder


@pytest.fixture(scope="module")
def address(
    language_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    words = with_template(tmp_path_factory.mktemp("tools"), TEMPLATE)
    with (
        Engine.open(language_models["filled"], words, sequences=2, threads=1) as engine,
        serving(create_app(engine, MODEL)) as url,
    ):
        yield url


def ask(client: "openai.OpenAI", **fields: Any) -> Any:
    body = {"messages": TALK, "tools": TOOLS, "parallel_tool_calls": False, "temperature": 0}
    return client.chat.completions.create(model=MODEL, **{**body, **fields})


def test_a_call_that_is_required(client: "openai.OpenAI") -> None:
    created = ask(client, tool_choice="required")
    (choice,) = created.choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert call.type == "function"
    assert call.function.name in ("f", "g")
    assert json.loads(call.function.arguments) in ({}, {"a": 5}, {"a": 7})


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_by_name(client: "openai.OpenAI", stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "f"}}
    created = ask(client, tool_choice=choice, stream=stream)
    if not stream:
        (call,) = created.choices[0].message.tool_calls
        assert call.function.name == "f"
        assert json.loads(call.function.arguments)["a"] in (5, 7)
        return
    choices = [part.choices[0] for part in created]
    deltas = [call for each in choices for call in each.delta.tool_calls or []]
    assert deltas[0].id
    assert [each.function.name for each in deltas] == ["f"] + [None] * (len(deltas) - 1)
    assert json.loads("".join(each.function.arguments for each in deltas))["a"] in (5, 7)
    assert len(deltas) > 3
    assert {each.index for each in deltas} == {0}
    assert choices[-1].finish_reason == "tool_calls"
    assert not any(each.delta.content for each in choices)


def test_a_conversation_of_three_calls(client: "openai.OpenAI") -> None:
    talk: list[Any] = [{"role": "user", "content": "H"}]
    results = []
    for _ in range(3):
        choice: Any = {"type": "function", "function": {"name": "f"}}
        created = ask(client, messages=talk[-3:], tool_choice=choice, tools=TOOLS[:1])
        message = created.choices[0].message
        (call,) = message.tool_calls
        results.append(json.loads(call.function.arguments)["a"] * 2)
        talk.append(message.model_dump(exclude_none=True))
        talk.append({"role": "tool", "tool_call_id": call.id, "content": str(results[-1])})
    assert set(results) <= {10, 14}
    assert ask(client, messages=talk[-2:], tool_choice="none").choices[0].message.content


def test_without_a_call_the_answer_is_text(client: "openai.OpenAI") -> None:
    auto = ask(client, max_tokens=5)
    assert auto.choices[0].message.tool_calls is None
    assert auto.choices[0].message.content
    none = ask(client, max_tokens=5, tool_choice="none")
    assert none.usage.prompt_tokens == auto.usage.prompt_tokens - len("fg")
    pattern = '[{]"name": "g", "parameters": [{]}}'
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": pattern}}
    called = ask(client, extra_body={"response_format": form}).choices[0]
    assert [call.function.name for call in called.message.tool_calls] == ["g"]
    assert called.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [{}]}, "tools"),
        ({"tools": ["f"]}, "tools"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "web_search", "function": {"name": "f"}}]}, "tools"),
        ({"tools": [function("a b")]}, "tools"),
        ({"tools": [function("a" * 65)]}, "tools"),
        ({"tools": [function("f", parameters=1)]}, "tools"),
        ({"tools": TOOLS[:1] * 2}, "tools"),
        ({"tools": [function(f"f{i}") for i in range(129)]}, "tools"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice"),
        ({"tool_choice": {"function": 1}}, "tool_choice"),
        ({"tool_choice": [1]}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({**REQUIRED, "response_format": {"type": "json_object"}}, "response_format"),
        ({**REQUIRED, "response_format": 3}, "response_format"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": 3}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [function("f", arguments="{")]}]}, None),
        ({"messages": [{"role": "assistant", "tool_calls": [HALF]}]}, None),
        ({"messages": [{"role": "tool", "content": "a", "tool_call_id": 1}]}, "messages"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ],
)
def test_requests_that_are_refused(address: str, fields: dict[str, Any], field: str | None) -> None:
    body = {"messages": TALK, "tools": TOOLS, "max_tokens": 2, **fields}
    result = plain_http.post(f"{address}/v1/chat/completions", json=body)
    assert (result.status_code, result.json()["error"]["param"]) == (400, field)


def test_schemas_that_cannot_be_followed(address: str) -> None:
    wrong = {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}
    tools = [function("f", parameters=wrong)]
    body = {"messages": TALK, "tools": tools, "tool_choice": "required"}
    result = plain_http.post(f"{address}/v1/chat/completions", json=body)
    assert (result.status_code, result.json()["error"]["code"]) == (400, "run.grammar")


def test_a_template_without_tools(language_models: dict[str, Path]) -> None:
    with (
        Engine.open(language_models["filled"], language_models["tokenizer"], threads=1) as engine,
        serving(create_app(engine, MODEL)) as url,
    ):
        body = {"messages": TALK, "tools": TOOLS, "max_tokens": 2}
        refused = plain_http.post(f"{url}/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
        body["tool_choice"] = "none"
        assert plain_http.post(f"{url}/v1/chat/completions", json=body).status_code == 200


def test_what_a_template_is_given(tmp_path: Path) -> None:
    template = (
        "{{ tools | tojson }}{{ messages[0].tool_calls[0].function.arguments.a }}"
        "{% if no_thoughts %}!{% endif %}{{ strftime_now('%Y') | length }}"
    )
    text = Text(with_template(tmp_path, template))
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}]
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}]
    tokens = text.chat(messages, [{"name": "é <b>"}], {"no_thoughts": True, "messages": []})
    assert text.decode(tokens) == '[{"name": "! !b!"}]1!4'


def test_a_template_that_writes_arguments_as_they_are(tmp_path: Path) -> None:
    template = "{{ 'a: ' + messages[0].tool_calls[0].function.arguments }}"
    text = Text(with_template(tmp_path, template))
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}]
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}]
    assert text.decode(text.chat(messages)) == 'a: {"a": 1}'


def test_a_template_for_tools_alone(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "no"}, {"name": "tool_use", "template": "{{ tools }}"}]
    text = Text(with_template(tmp_path, named))  # type: ignore[arg-type]
    assert text.decode(text.chat(TALK)) == "no"
    assert text.decode(text.chat(TALK, [{"a": 1}])) != "no"


def test_a_prompt_that_ends_within_a_thought(tmp_path: Path) -> None:
    folder = with_template(tmp_path, "{{ messages[0].content }}<think> {# </think> #}")
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    token = {**state["added_tokens"][0], "id": 3, "content": "<think>"}
    state["model"]["vocab"]["<think>"] = state["model"]["vocab"].pop("d")
    state["added_tokens"].append(token)
    path.write_text(json.dumps(state))
    text = Text(folder)
    assert text.is_thinking(text.chat(TALK))
    assert not text.is_thinking(text.encode("Hi"))
    assert text.marks == {3}
    stream = text.stream(text.marks)
    assert "".join(stream.step(token) for token in [1, 3, 2]) == "b<think>c"
    plain = text.stream()
    assert "".join(plain.step(token) for token in [1, 3, 2]) == "bc"
