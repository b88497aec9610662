"""Words and tokens: a tokenizer, and the template that makes a prompt of a conversation."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from relaxd.errors import InputError
from relaxd.llm.spelling import Spelling
from relaxd.llm.template import Message, Template, read_template
from relaxd.llm.tools import MARKS, THINK, THINK_END, CallForm, find_form

TOKENIZER = "tokenizer.json"
_SETTINGS = ("tokenizer_config.json", "generation_config.json", "genai_config.json", "config.json")
_TAIL = 8
"""Tokens at a prompt's end in which a thought may begin."""
_NOTHING: Mapping[str, Any] = {}
_NO_WORDS: Mapping[int, str] = {}


class Text:
    """The tokenizer of a folder as Hugging Face and onnxruntime-genai write it: tokenizer.json, and
    beside it the settings that name the tokens at which a text ends.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / TOKENIZER
        if not path.is_file():
            raise InputError(
                f"{folder} has no {TOKENIZER}", hint="name the folder of the model's tokenizer"
            )
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:
            raise InputError(f"cannot read the tokenizer {path}: {error}") from error
        # Some files say to cut or to fill up every text.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.spell = Spelling(self._tokenizer).spell
        self._settings = [_settings(folder / name) for name in _SETTINGS]
        self._folder = folder
        self._templates: dict[bool, Template | None] = {}

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens at which an answer ends."""
        tokens: set[int] = set()
        for settings in self._settings:
            for part in (settings, settings.get("model", {})):
                numbers = part.get("eos_token_id")
                tokens |= {numbers} if isinstance(numbers, int) else set(numbers or ())
        named = self._tokenizer.token_to_id(self._special("eos_token") or "")
        return frozenset(tokens | ({named} - {None}))

    @cached_property
    def longest_token(self) -> int:
        """The most bytes of text that a token stands for: those of the longest one as the
        vocabulary writes it, where no byte takes less than one.
        """
        return max((len(word.encode()) for word in self._tokenizer.get_vocab()), default=1)

    @property
    def serialized(self) -> str:
        """The tokenizer's JSON text."""
        return str(self._tokenizer.to_str())

    def check_same(self, smaller: "Text") -> None:
        """Raises InputError where the other has other tokens."""
        if self._tokenizer.get_vocab() != smaller._tokenizer.get_vocab():
            raise InputError(
                f"{self._folder} and {smaller._folder} have different tokens",
                hint="a draft model must have the tokenizer of the model",
            )

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text; special: with what the tokenizer puts around every text."""
        # By the function for batches: it lets other threads run, and computes no offsets.
        encodings = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        return list(encodings[0].ids)

    def encode_pair(self, lhs: str, rhs: str) -> tuple[list[int], list[int]]:
        """Tokens of a pair of texts, and the one of both that each is of."""
        encoding = self._tokenizer.encode_batch_fast([(lhs, rhs)])[0]
        return list(encoding.ids), list(encoding.type_ids)

    def token_ends(self, text: str) -> list[int]:
        """Where each token of a text ends."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return [end for _, end in encoding.offsets]

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, with added ones."""
        return int(self._tokenizer.get_vocab_size())

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def stream(self, shown: frozenset[int] = frozenset()) -> "Stream":
        """Decode tokens one by one; shown: special tokens that are text."""
        return Stream(self._tokenizer, {token: self.spell(token).decode() for token in shown})

    @cached_property
    def added(self) -> dict[str, int]:
        """The tokens that are whole whatever is around them, by their text."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return {word.content: token for token, word in added}

    @cached_property
    def marks(self) -> frozenset[int]:
        """The special tokens by which thoughts and calls of tools are told from text."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return frozenset(token for token, word in added if word.special and word.content in MARKS)

    @cached_property
    def call_form(self) -> CallForm | None:
        """How the model writes calls of tools; None where its template takes no tools, or teaches a
        form that nothing here reads.
        """
        template = self._template_of(tools=True)
        return find_form(template.source) if template and template.takes_tools else None

    @cached_property
    def thinks(self) -> bool:
        """True if the template tells thoughts from what the model says."""
        template = self._template_of(tools=False)
        return template is not None and THINK_END in template.source

    def is_thinking(self, prompt: Sequence[int]) -> bool:
        """True if a prompt ends within a thought."""
        tail = self._tokenizer.decode(list(prompt[-_TAIL:]), skip_special_tokens=False)
        return self.thinks and bool(tail.rstrip().endswith(THINK))

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] = (),
        variables: Mapping[str, Any] = _NOTHING,
    ) -> list[int]:
        """The tokens of a conversation; raises as `render` does."""
        # Templates write special tokens themselves.
        return self.encode(self.render(messages, tools, variables), special=False)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] = (),
        variables: Mapping[str, Any] = _NOTHING,
    ) -> str:
        """The prompt of a conversation, up to where the assistant's next words begin; tools: those
        that it offers; variables: others that the template reads. Raises InputError without a
        template, or where it refuses the messages.
        """
        template = self._template_of(tools=bool(tools))
        if template is None:
            raise InputError(
                f"{self._folder} has no template of conversations", hint="give a plain prompt"
            )
        own = {
            "tools": [dict(tool) for tool in tools] or None,
            "bos_token": self._special("bos_token") or "",
            "eos_token": self._special("eos_token") or "",
        }
        return template.render(messages, {**variables, **own})

    def _template_of(self, *, tools: bool) -> Template | None:
        if tools not in self._templates:
            self._templates[tools] = read_template(self._folder, self._settings[0], tools=tools)
        return self._templates[tools]

    def _special(self, name: str) -> str | None:
        word = self._settings[0].get(name)
        text = word.get("content") if isinstance(word, dict) else word
        return text if isinstance(text, str) else None


class Stream:
    """The text of tokens as they come; a character of several tokens comes with the last."""

    def __init__(self, tokenizer: Any, shown: Mapping[int, str] = _NO_WORDS) -> None:
        self._tokenizer = tokenizer
        self._shown = shown
        self._stream = DecodeStream(skip_special_tokens=True)

    def step(self, token: int) -> str:
        """The text that a token adds."""
        if token in self._shown:
            return self._shown[token]
        return self._stream.step(self._tokenizer, token) or ""


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
    return settings if isinstance(settings, dict) else {}
