"""Messages of a conversation, as templates take them."""

from collections.abc import Mapping
from typing import Any

from relaxd.errors import InputError
from relaxd.llm.wire.documents import parse_document


def read_messages(value: Any) -> list[dict[str, Any]]:
    """Read a list of messages; raises InputError for what is none."""
    if not isinstance(value, list) or not value:
        raise InputError("messages must be a list that is not empty", field="messages")
    return [_message(item) for item in value]


def _message(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise InputError("a message must have a role", field="messages")
    message: dict[str, Any] = {"role": value["role"]}
    calls = value.get("tool_calls")
    message["content"] = _content(value.get("content"), empty=bool(calls))
    if calls:
        if not isinstance(calls, list):
            raise InputError("tool_calls must be a list", field="messages")
        message["tool_calls"] = [_call(call) for call in calls]
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (text := value.get(name)) is not None:
            if not isinstance(text, str):
                raise InputError(f"a message's {name} must be text", field="messages")
            message[name] = text
    return message


def _content(content: Any, *, empty: bool) -> str:
    if content is None and empty:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]
    if not isinstance(content, str):
        raise InputError("a message's content must be text", field="messages")
    return content


def _call(value: Any) -> dict[str, Any]:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InputError("a call must have a function with a name", field="messages")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, str):
        # Templates write them as JSON themselves.
        arguments = parse_document(arguments or "{}", "a call's arguments")
    call = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": value["id"], **call} if isinstance(value.get("id"), str) else call
