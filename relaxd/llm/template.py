"""The template that makes a prompt of a conversation: code of whoever made the model, in jinja2's
sandbox.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from relaxd.errors import InputError

FILE = "chat_template.jinja"
_LONGEST = 1 << 20
_TOOLS = "tool_use"
"""The template for conversations with tools, of a model with several."""

Message = Mapping[str, Any]


class Template:
    """A template of conversations. Raises InputError for one that cannot be read."""

    def __init__(self, source: str) -> None:
        self.source = source
        # A template is a file of whoever made the model: it reads nothing but its variables.
        sandbox = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        # As transformers has them.
        sandbox.globals["raise_exception"] = _refuse
        sandbox.globals["strftime_now"] = datetime.now().strftime
        sandbox.filters["tojson"] = _write_json
        try:
            self._template = sandbox.from_string(source)
            self.takes_tools = "tools" in meta.find_undeclared_variables(sandbox.parse(source))
        except jinja2.TemplateError as error:
            raise InputError(f"the template of conversations cannot be read: {error}") from error

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        """The prompt of a conversation, up to where the assistant's next words begin; raises
        InputError where the template refuses the messages.
        """
        try:
            return self._render(messages, variables)
        except Exception as error:
            # Some templates write a call's arguments as they are, others as JSON.
            if any(message.get("tool_calls") for message in messages):
                try:
                    return self._render(_with_texts(messages), variables)
                except Exception:
                    pass
            raise InputError(f"the template refuses the messages: {error}") from error

    def _render(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        own = {**variables, "messages": [dict(message) for message in messages]}
        return self._template.render({**own, "add_generation_prompt": True})


def read_template(folder: Path, settings: Mapping[str, Any], *, tools: bool) -> Template | None:
    """Read the template of a model's folder; tools: the one for conversations with tools, where
    there are several.
    """
    own = folder / FILE
    source = own.read_text() if own.is_file() else settings.get("chat_template")
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source}
        source = (named.get(_TOOLS) if tools else None) or named.get("default")
    if not isinstance(source, str) or len(source) > _LONGEST:
        return None
    return Template(source)


def _with_texts(messages: Sequence[Message]) -> list[Message]:
    """Write the arguments of calls as JSON text."""
    return [
        {**message, "tool_calls": [_with_text(call) for call in message.get("tool_calls", ())]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": _write_json(function["arguments"])}}


def _write_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
