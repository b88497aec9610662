"""Tokens of texts and texts of tokens, in vLLM's form."""

from collections.abc import Mapping
from typing import Any

from relaxd.errors import InputError
from relaxd.llm.engine import Engine
from relaxd.llm.wire.documents import read_field, read_object
from relaxd.llm.wire.messages import read_messages
from relaxd.llm.wire.tools import read_tools


def tokenize(engine: Engine, document: Any) -> dict[str, Any]:
    """Answer a request for the tokens of a prompt or a conversation; raises InputError,
    CapacityError.
    """
    fields = read_object(document)
    tokens = _encode(engine, fields)
    words = None
    if read_field(fields, "return_token_strs", bool):
        words = [engine.spell(token).decode(errors="backslashreplace") for token in tokens]
    return {
        "count": len(tokens),
        "max_model_len": engine.capacity,
        "tokens": tokens,
        "token_strs": words,
    }


def _encode(engine: Engine, fields: Mapping[str, Any]) -> list[int]:
    if "messages" in fields:
        messages, tools = read_messages(fields["messages"]), read_tools(fields)
        variables = read_field(fields, "chat_template_kwargs", dict) or {}
        return engine.encode_chat(messages, [each.document for each in tools.offered], variables)
    prompt = read_field(fields, "prompt", str)
    if prompt is None:
        raise InputError("a prompt or messages are needed", field="prompt")
    special = read_field(fields, "add_special_tokens", bool)
    return engine.encode(prompt, special=special is not False) if prompt else []


def detokenize(engine: Engine, document: Any) -> dict[str, Any]:
    """Answer a request for the text of tokens; raises InputError."""
    tokens = read_field(read_object(document), "tokens", list)
    if tokens is None or not all(type(token) is int for token in tokens):
        raise InputError("tokens must be a list of tokens", field="tokens")
    return {"prompt": engine.decode(tokens)}
