"""The tools of a request."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relaxd.errors import InputError
from relaxd.llm.tools import NO_TOOLS, Choice, Tool, Tools
from relaxd.llm.wire.documents import read_field

_MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def read_tools(document: Mapping[str, Any]) -> Tools:
    """Read `tools`, `tool_choice` and `parallel_tool_calls`; raises InputError."""
    offered = read_field(document, "tools", list) or []
    choice = document.get("tool_choice")
    parallel = read_field(document, "parallel_tool_calls", bool)
    if not offered:
        if choice not in (None, Choice.AUTO, Choice.NONE):
            raise InputError("tool_choice needs tools", field="tool_choice")
        return NO_TOOLS
    if len(offered) > _MOST_TOOLS:
        raise InputError(f"there are more than {_MOST_TOOLS} tools", field="tools")
    tools = Tools(tuple(map(_tool, offered)), parallel=parallel is not False)
    if len({tool.name for tool in tools.offered}) < len(offered):
        raise InputError("two tools have one name", field="tools")
    tools = _choose(tools, choice)
    if tools.required and (document.get("response_format") or {}).get("type", "text") != "text":
        raise InputError(
            "an answer that has to call a tool has no other form",
            hint="leave out response_format",
            field="response_format",
        )
    return tools


def _tool(value: Any) -> Tool:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or value.get("type", "function") != "function":
        raise InputError("a tool must be a function", field="tools")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "a tool must have a name of 1 to 64 letters, digits and _ - .", field="tools"
        )
    if parameters is not None and not isinstance(parameters, dict):
        raise InputError(f"the parameters of {name} must be a JSON schema", field="tools")
    if not isinstance(function.get("description", ""), str | None):
        raise InputError(f"the description of {name} must be text", field="tools")
    return Tool(name, parameters or {"type": "object", "properties": {}}, value)


def _choose(tools: Tools, choice: Any) -> Tools:
    if choice is None or choice in tuple(Choice):
        return replace(tools, choice=Choice(choice or Choice.AUTO))
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    named = tuple(tool for tool in tools.offered if tool.name == name)
    if not named:
        raise InputError(
            "tool_choice is not understood",
            hint="auto, none, required, or a function of tools",
            field="tool_choice",
        )
    return replace(tools, choice=Choice.REQUIRED, parallel=False, named=name)
