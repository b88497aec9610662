"""Tools that a conversation offers, and the forms in which models write calls of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relaxd.llm.grammar import Grammar

THINK, THINK_END = "<think>", "</think>"
SPACES = r"(\n {0,32}| )?"
"""Between the parts of a call's arguments, as in other JSON that a grammar admits."""


class Choice(StrEnum):
    """How free a model is to call tools: it may, must not, or must call one."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True)
class Tool:
    """A function: its name, the JSON schema of its arguments, and the document that the request has
    of it, for the template.
    """

    name: str
    parameters: Mapping[str, Any]
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Tools:
    """The tools of a request. parallel: whether one answer may call several; named: the only one
    that it may call.
    """

    offered: tuple[Tool, ...] = ()
    choice: Choice = Choice.AUTO
    parallel: bool = True
    named: str | None = None

    @property
    def callable(self) -> bool:
        """True if the answer may call a tool."""
        return bool(self.offered) and self.choice is not Choice.NONE

    @property
    def required(self) -> bool:
        """True if the answer has to call a tool."""
        return self.callable and self.choice is Choice.REQUIRED


NO_TOOLS = Tools()


@dataclass(frozen=True)
class CallForm:
    """How a model writes calls: `begin`, then each call as `head`, its name, `middle`, its
    arguments as JSON and `tail`, with `between` between two, then `end`.

    mark: a text that only templates of this form have. trigger: where calls begin, empty where they
    are the whole answer; stop: where they end, empty for the answer's end. pattern: a regular
    expression of a name and what is around it, up to its arguments.
    """

    name: str
    mark: str
    trigger: str
    head: str
    middle: str
    tail: str
    pattern: str
    begin: str = ""
    between: str = ""
    end: str = ""
    stop: str = ""

    @property
    def writes_objects(self) -> bool:
        """True if a call is one JSON object with the name in it."""
        return self.pattern == _OBJECT


_OBJECT = (
    r'[\s\[\],;}]*\{\s*"name"\s*:\s*"([^"\\]{1,256})"\s*,'
    r'\s*"(?:arguments|parameters)"\s*:\s*'
)
_NAME = r"([\w.:/-]{1,256})"
_DEEPSEEK = r"[\s`]*(?:<｜tool▁call▁end｜>\s*)?<｜tool▁call▁begin｜>"
MARKS = (
    THINK, THINK_END, "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]",
    "<|python_tag|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
)  # fmt: skip
"""What a reader of answers has to see of special tokens, which are no text otherwise."""
FORMS = (
    CallForm(
        "deepseek-v3",
        "<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>",
        trigger="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁calls▁begin｜>",
        head="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        middle="\n```json\n",
        pattern=_DEEPSEEK + rf"function<｜tool▁sep｜>\s*{_NAME}\s*```json\s*",
        tail="\n```<｜tool▁call▁end｜>",
        between="\n",
        end="<｜tool▁calls▁end｜>",
        stop="<｜tool▁calls▁end｜>",
    ),
    CallForm(
        "deepseek",
        "<｜tool▁calls▁begin｜>",
        trigger="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁calls▁begin｜>",
        head="<｜tool▁call▁begin｜>",
        middle="<｜tool▁sep｜>",
        pattern=_DEEPSEEK + rf"\s*{_NAME}\s*<｜tool▁sep｜>\s*",
        tail="<｜tool▁call▁end｜>",
        end="<｜tool▁calls▁end｜>",
        stop="<｜tool▁calls▁end｜>",
    ),
    CallForm(
        "mistral-args",
        "[ARGS]",
        trigger="[TOOL_CALLS]",
        head="[TOOL_CALLS]",
        middle="[ARGS]",
        pattern=rf"\s*(?:\[TOOL_CALLS\])?\s*{_NAME}\s*(?:\[CALL_ID\]\w*)?\[ARGS\]\s*",
        tail="",
    ),
    CallForm(
        "mistral",
        "[TOOL_CALLS]",
        trigger="[TOOL_CALLS]",
        begin="[TOOL_CALLS][",
        head='{"name": "',
        middle='", "arguments": ',
        pattern=_OBJECT,
        tail="}",
        between=", ",
        end="]",
    ),
    CallForm(
        "hermes",
        "<tool_call>",
        trigger="<tool_call>",
        head='<tool_call>\n{"name": "',
        middle='", "arguments": ',
        pattern=_OBJECT,
        tail="}\n</tool_call>",
        between="\n",
        stop="</tool_call>",
    ),
    CallForm(
        "llama3",
        '"parameters"',
        trigger="",
        head='{"name": "',
        middle='", "parameters": ',
        pattern=_OBJECT,
        tail="}",
        between="; ",
    ),
)
"""The first one whose mark a template has is the model's."""
_XML = "<function="
"""Arguments as tags, which are no JSON."""


def find_form(template: str) -> CallForm | None:
    """The form that a template teaches its model; None where it is none of these."""
    if _XML in template:
        return None
    return next((form for form in FORMS if form.mark in template), None)


def make_grammar(
    tools: Tools, form: CallForm, added: Mapping[str, int], *, thinking: bool
) -> Grammar:
    """The grammar of an answer that calls tools and says nothing else. added: the tokenizer's added
    tokens by their text, which a grammar has to name by number; thinking: whether the prompt ends
    within a thought, which goes first.
    """

    def literal(text: str) -> str:
        return _write_literal(text, added)

    calls = f"call ({literal(form.between)} call)*" if tools.parallel else "call"
    allowed = [tool for tool in tools.offered if tools.named in (None, tool.name)]
    lines = [
        f"start: {'thought ' if thinking else ''}{literal(form.begin)} {calls} {literal(form.end)}",
        "call: " + " | ".join(f"call_{i}" for i in range(len(allowed))),
    ]
    if thinking:
        lines += [_thought(added), r"TEXT: /(.|\n)*/", r"SPACE: /\s{0,8}/"]
    for i, tool in enumerate(allowed):
        name = json.dumps(tool.name)[1:-1]
        guided = {**tool.parameters, "x-guidance": {"whitespace_pattern": SPACES}}
        head, tail = literal(form.head + name + form.middle), literal(form.tail)
        lines.append(f"call_{i}: {head} arguments_{i} {tail}")
        lines.append(f"arguments_{i}: %json {json.dumps(guided)}")
    return Grammar.lark("\n".join(lines))


def _thought(added: Mapping[str, int]) -> str:
    """Rules of a thought that has begun before the answer."""
    if THINK_END in added:
        return f"thought: TEXT <[{added[THINK_END]}]> SPACE"
    return f'thought: thinking SPACE\nthinking[lazy]: TEXT "{THINK_END}"'


def _write_literal(text: str, added: Mapping[str, int]) -> str:
    """A text in a grammar, with added tokens by their numbers."""
    parts: list[str] = []
    while text:
        starts = {mark: text.find(mark) for mark in added if mark and mark in text}
        mark = min(starts, key=lambda mark: (starts[mark], -len(mark)), default=None)
        plain = text if mark is None else text[: starts[mark]]
        parts += [json.dumps(plain, ensure_ascii=False)] if plain else []
        if mark is None:
            break
        parts.append(f"<[{added[mark]}]>")
        text = text[starts[mark] + len(mark) :]
    return " ".join(parts)
