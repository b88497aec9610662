"""OpenAI's documents: what a request asks for, and how answers and errors look."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.text import sanitize
from relaxd.errors import (
    CapacityError,
    ClosedError,
    GrammarError,
    InputError,
    OverloadError,
    RelaxdError,
)
from relaxd.http.bodies import JSON_TYPE, count_values
from relaxd.http.connections import Refusal
from relaxd.http.errors import (
    ApiError,
    BodyTooLarge,
    ForeignOrigin,
    HeaderTooLarge,
    Unauthorized,
    UnknownHost,
    UnsupportedMediaType,
)
from relaxd.llm.generation import Generation
from relaxd.llm.grammar import Grammar, Syntax
from relaxd.llm.sampling import Sampling

_DEEPEST = 100
_GREATEST = (1 << 63) - 1

_REFUSED: dict[str, tuple[Any, ...]] = {
    "n": (1, None),
    "best_of": (1, None),
    "logprobs": (False, 0, None),
    "top_logprobs": (0, None),
    "tools": ([], None),
    "functions": ([], None),
    "logit_bias": ({}, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "suffix": ("", None),
    "echo": (False, None),
}
"""Fields that would change an answer and are not followed, with the values that ask for nothing."""


@dataclass(frozen=True)
class Asked:
    """A request for an answer: a conversation or a plain prompt."""

    prompt: str | list[int] | None
    messages: list[dict[str, Any]] | None
    sampling: Sampling
    priority: int
    stream: bool
    usage: bool

    @property
    def chat(self) -> bool:
        """True if the prompt is a conversation."""
        return self.messages is not None


def read_document(data: bytes, most_values: int) -> Any:
    """The JSON document of a body; raises InputError for one that is none, has more values, is
    nested deeply, or has texts or numbers that cannot be sent on.
    """
    # A value costs up to a hundred times its bytes once it is parsed.
    if (values := count_values(data)) > most_values:
        raise InputError(f"the body has {values} values, the limit is {most_values}")
    try:
        document = json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not valid JSON: {error}") from error
    _check(document)
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no number {name}")


def _check(document: Any) -> None:
    """Level by level, as a document may be nested more deeply than functions can be."""
    level = [document]
    for _ in range(_DEEPEST):
        containers = [value for value in level if isinstance(value, list | dict)]
        texts = [value for value in level if isinstance(value, str)]
        texts += [name for value in containers if isinstance(value, dict) for name in value]
        if not all(map(_is_text, texts)):
            raise InputError("a text of the body has half of a surrogate pair")
        if not containers:
            return
        level = [
            item
            for value in containers
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, str | list | dict)
        ]
    raise InputError(f"the body is nested more than {_DEEPEST} times")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_request(document: Any, *, chat: bool) -> Asked:
    """Reads a request's body; raises InputError for what is malformed or cannot be followed."""
    if not isinstance(document, Mapping):
        raise InputError("the body must be a JSON object")
    for name, nothing in _REFUSED.items():
        if name in document and document[name] not in nothing:
            raise InputError(f"{name} is not supported", hint="leave it out", field=name)
    options = _typed(document, "stream_options", dict) or {}
    return Asked(
        None if chat else _prompt(document.get("prompt")),
        _messages(document.get("messages")) if chat else None,
        _sampling(document, chat=chat),
        _typed(document, "priority", int) or 0,
        bool(_typed(document, "stream", bool)),
        bool(options.get("include_usage")),
    )


def _prompt(value: Any) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        (value,) = value
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(item) is int for item in value):
        return value
    raise InputError("prompt must be one text, or a list of tokens", field="prompt")


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise InputError("messages must be a list that is not empty", field="messages")
    return [_message(item) for item in value]


def _message(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise InputError("a message must have a role", field="messages")
    content = value.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]
    if not isinstance(content, str):
        raise InputError("a message's content must be text", field="messages")
    return {"role": value["role"], "content": content}


def _sampling(document: Mapping[str, Any], *, chat: bool) -> Sampling:
    stop = document.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(item, str) for item in stops):
        raise InputError("stop must be a text or a list of texts", field="stop")
    longest = _typed(document, "max_completion_tokens", int) or _typed(document, "max_tokens", int)
    temperature = _typed(document, "temperature", int, float)
    top_p = _typed(document, "top_p", int, float)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_k=_typed(document, "top_k", int) or 0,
        top_p=1.0 if top_p is None else top_p,
        seed=_typed(document, "seed", int),
        # As OpenAI's: a plain completion is short where nothing is said.
        max_tokens=longest if longest is not None or chat else 16,
        stop=tuple(stops),
        grammar=_grammar(_typed(document, "response_format", dict) or {}),
    )


def _grammar(form: Mapping[str, Any]) -> Grammar | None:
    """Read `response_format`; `grammar` is ours, in the words that OpenAI's tools have."""
    kind = form.get("type", "text")
    content = form.get(kind) if isinstance(kind, str) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar.json_object()
    if kind == "json_schema" and isinstance(content, Mapping):
        schema = content.get("schema")
        if isinstance(schema, Mapping | bool):
            return Grammar.schema(schema)
    if kind == "grammar" and isinstance(content, Mapping):
        syntax, definition = content.get("syntax"), content.get("definition")
        if syntax in (Syntax.REGEX, Syntax.LARK) and isinstance(definition, str):
            return Grammar(Syntax(syntax), definition)
    raise InputError(
        "response_format is not understood",
        hint="text, json_object, json_schema with a schema, or grammar with the syntax regex or"
        " lark and a definition",
        field="response_format",
    )


def _typed(document: Mapping[str, Any], name: str, *kinds: type) -> Any:
    value = document.get(name)
    if value is not None and type(value) not in kinds:
        raise InputError(f"{name} must be {' or '.join(k.__name__ for k in kinds)}", field=name)
    if type(value) is int and not -_GREATEST <= value <= _GREATEST:
        raise InputError(f"{name} must have 64 bits", field=name)
    return value


class Answer:
    """The documents of one answer."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._chat = chat
        kind = "chat.completion" if chat else "text_completion"
        self._complete = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }
        self._part = {**self._complete, "object": f"{kind}.chunk" if chat else kind}

    def complete(self, generation: Generation, text: str) -> dict[str, Any]:
        """The answer at once."""
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {}
        return {
            **self._complete,
            "choices": [_choice(generation, content, text)],
            "usage": usage(generation),
        }

    def first(self) -> dict[str, Any] | None:
        """The first part of a stream, None for a plain prompt."""
        if not self._chat:
            return None
        delta = {"delta": {"role": "assistant", "content": ""}}
        return {**self._part, "choices": [{"index": 0, "finish_reason": None, **delta}]}

    def part(self, generation: Generation, text: str, *, last: bool) -> dict[str, Any]:
        """A piece of a stream."""
        content = {"delta": {"content": text} if text else {}} if self._chat else {}
        return {**self._part, "choices": [_choice(generation if last else None, content, text)]}

    def usage(self, generation: Generation) -> dict[str, Any]:
        """The last part of a stream, where the request asks for it."""
        return {**self._part, "choices": [], "usage": usage(generation)}


def _choice(generation: Generation | None, content: dict[str, Any], text: str) -> dict[str, Any]:
    finish = (
        generation.finish.value
        if generation is not None and generation.finish is not None
        else None
    )
    return {"index": 0, "finish_reason": finish, "logprobs": None, **(content or {"text": text})}


def usage(generation: Generation) -> dict[str, Any]:
    """The tokens of the prompt, with those that were not computed again, and of the answer."""
    prompt, answer = len(generation.prompt), len(generation.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": generation.reused or 0},
    }


def failure(error: RelaxdError) -> tuple[int, dict[str, Any]]:
    """The status and the document of an error."""
    status, kind = next(
        ((status, kind) for known, status, kind in _STATUSES if isinstance(error, known)),
        (500, "server_error"),
    )
    code = next((code for known, code in _CODES if isinstance(error, known)), error.code)
    param = "response_format" if isinstance(error, GrammarError) else error.details.get("field")
    # What a message quotes is the client's, and may not even be text.
    return status, sanitize(_problem(str(error), kind, code, param))


def refuse_connection(refusal: Refusal) -> tuple[str, bytes]:
    """The media type and the body of what a connection is told before it is closed."""
    document = _problem(refusal.detail, "server_error", refusal.code, None)
    return JSON_TYPE, json.dumps(document).encode()


def _problem(message: str, kind: str, code: str, param: object) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


_STATUSES: tuple[tuple[type[RelaxdError], int, str], ...] = (
    (InputError, 400, "invalid_request_error"),
    (CapacityError, 400, "invalid_request_error"),
    (ClosedError, 503, "server_error"),
    (OverloadError, 429, "rate_limit_error"),
    (BodyTooLarge, 413, "invalid_request_error"),
    (UnsupportedMediaType, 415, "invalid_request_error"),
    (HeaderTooLarge, 431, "invalid_request_error"),
    (Unauthorized, 401, "authentication_error"),
    (ForeignOrigin, 403, "permission_error"),
    (UnknownHost, 421, "permission_error"),
    (ApiError, 400, "invalid_request_error"),
)
"""The first class that fits decides, so a class stands before its bases."""

_CODES = ((CapacityError, "context_length_exceeded"), (Unauthorized, "invalid_api_key"))
"""Where OpenAI's clients know an error by a name of their own."""
