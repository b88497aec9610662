"""OpenAI's requests for completions: a conversation or plain prompts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxd.errors import InputError
from relaxd.llm.grammar import Grammar, Syntax
from relaxd.llm.sampling import Sampling
from relaxd.llm.tools import NO_TOOLS, Tools
from relaxd.llm.wire.documents import read_field, read_object
from relaxd.llm.wire.messages import read_messages
from relaxd.llm.wire.tools import read_tools

_MOST_CHOICES = 128
_REFUSED: dict[str, tuple[Any, ...]] = {
    "functions": ([], None),
    "suffix": ("", None),
}
"""Fields that would change an answer and are not followed, with the values that ask for nothing."""


@dataclass(frozen=True)
class Asked:
    """A request for completions, `n` of each prompt; prompts: of a conversation none. echo: whether
    a completion repeats its prompt in front; adapter: the name of one; variables: of the model's
    template.
    """

    prompts: tuple[str | list[int], ...]
    messages: list[dict[str, Any]] | None
    sampling: Sampling
    n: int
    echo: bool
    priority: int
    stream: bool
    usage: bool
    adapter: str | None = None
    tools: Tools = NO_TOOLS
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chat(self) -> bool:
        """True if the prompt is a conversation."""
        return self.messages is not None


def read_request(document: Any, *, chat: bool) -> Asked:
    """Reads a request's body; raises InputError for what is malformed or cannot be followed."""
    document = read_object(document)
    for name, nothing in _REFUSED.items():
        if name in document and document[name] not in nothing:
            raise InputError(f"{name} is not supported", hint="leave it out", field=name)
    options = read_field(document, "stream_options", dict) or {}
    prompts = () if chat else _prompts(document.get("prompt"))
    echo = not chat and bool(read_field(document, "echo", bool))
    return Asked(
        prompts,
        read_messages(document.get("messages")) if chat else None,
        _sampling(document, chat=chat, echo=echo),
        _count(document, max(len(prompts), 1)),
        echo,
        read_field(document, "priority", int) or 0,
        bool(read_field(document, "stream", bool)),
        bool(options.get("include_usage")),
        None,
        read_tools(document) if chat else NO_TOOLS,
        read_field(document, "chat_template_kwargs", dict) or {},
    )


def _count(document: Mapping[str, Any], prompts: int) -> int:
    """How many completions each prompt gets."""
    n = read_field(document, "n", int)
    n = 1 if n is None else n
    if n < 1 or n * prompts > _MOST_CHOICES:
        raise InputError(f"n must be 1 to {max(_MOST_CHOICES // prompts, 1)} here", field="n")
    if read_field(document, "best_of", int) not in (None, n):
        raise InputError("best_of is not supported", hint="leave it out", field="best_of")
    return n


def _prompts(value: Any) -> tuple[str | list[int], ...]:
    """Read one text, one list of tokens, or a list of several of either."""
    several = isinstance(value, list) and value and isinstance(value[0], str | list)
    prompts = value if several else [value]
    if len(prompts) > _MOST_CHOICES:
        raise InputError(f"there are more than {_MOST_CHOICES} prompts", field="prompt")
    if all(isinstance(prompt, str) or _is_tokens(prompt) for prompt in prompts):
        return tuple(prompts)
    raise InputError("prompt must be texts, or lists of tokens", field="prompt")


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _sampling(document: Mapping[str, Any], *, chat: bool, echo: bool) -> Sampling:
    stop = document.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(item, str) for item in stops):
        raise InputError("stop must be a text or a list of texts", field="stop")
    stop_tokens = read_field(document, "stop_token_ids", list) or []
    if not _is_tokens(stop_tokens):
        raise InputError("stop_token_ids must be tokens", field="stop_token_ids")
    longest = read_field(document, "max_completion_tokens", int)
    longest = read_field(document, "max_tokens", int) if longest is None else longest
    logprobs = _logprobs(document, chat=chat)
    return Sampling(
        temperature=_number(document, "temperature", 1.0),
        top_k=_read_top_k(document),
        top_p=_number(document, "top_p", 1.0),
        seed=read_field(document, "seed", int),
        # As OpenAI's: a plain completion is short where nothing is said.
        max_tokens=longest if longest is not None or chat else 16,
        stop=tuple(stops),
        grammar=_grammar(read_field(document, "response_format", dict) or {}),
        min_p=_number(document, "min_p", 0.0),
        presence_penalty=_number(document, "presence_penalty", 0.0),
        frequency_penalty=_number(document, "frequency_penalty", 0.0),
        repetition_penalty=_number(document, "repetition_penalty", 1.0),
        logit_bias=_logit_bias(document),
        stop_tokens=tuple(stop_tokens),
        logprobs=logprobs,
        prompt_logprobs=echo and logprobs is not None,
    )


def _number(document: Mapping[str, Any], name: str, default: float) -> float:
    value = read_field(document, name, int, float)
    return default if value is None else value


def _read_top_k(document: Mapping[str, Any]) -> int:
    top_k = read_field(document, "top_k", int)
    # vLLM's clients ask for all tokens by -1.
    return 0 if top_k in (None, -1) else top_k


def _logprobs(document: Mapping[str, Any], *, chat: bool) -> int | None:
    if not chat:
        count: int | None = read_field(document, "logprobs", int)
        return count
    top = read_field(document, "top_logprobs", int)
    if read_field(document, "logprobs", bool):
        return top or 0
    if top:
        raise InputError("top_logprobs needs logprobs", hint="set it to true", field="top_logprobs")
    return None


def _logit_bias(document: Mapping[str, Any]) -> dict[int, float]:
    bias = read_field(document, "logit_bias", dict) or {}
    if not all(
        token.isascii() and token.isdecimal() and len(token) < 19 and type(value) in (int, float)
        for token, value in bias.items()
    ):
        raise InputError("logit_bias must map tokens to numbers", field="logit_bias")
    return {int(token): value for token, value in bias.items()}


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
