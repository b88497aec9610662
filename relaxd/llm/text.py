"""Words and tokens: a tokenizer, and the template that makes a prompt of a conversation."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from relaxd.errors import InputError
from relaxd.llm.spelling import Spelling

TOKENIZER = "tokenizer.json"
_SETTINGS = ("tokenizer_config.json", "generation_config.json", "genai_config.json", "config.json")
_TEMPLATE = "chat_template.jinja"
_LONGEST_TEMPLATE = 1 << 20

Message = Mapping[str, Any]


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
        self.spell = Spelling(self._tokenizer).spell
        self._settings = [_settings(folder / name) for name in _SETTINGS]
        self._folder = folder

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

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def stream(self) -> "Stream":
        """Decodes tokens one by one."""
        return Stream(self._tokenizer)

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, up to where the assistant's next words begin; raises
        InputError without a template, or where it refuses the messages.
        """
        if self._template is None:
            raise InputError(
                f"{self._folder} has no template of conversations", hint="give a plain prompt"
            )
        try:
            prompt = self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                bos_token=self._special("bos_token") or "",
                eos_token=self._special("eos_token") or "",
            )
        except Exception as error:  # it is code of whoever made the model
            raise InputError(f"the template refuses the messages: {error}") from error
        # Templates write special tokens themselves.
        return self.encode(prompt, special=False)

    @cached_property
    def _template(self) -> jinja2.Template | None:
        own = self._folder / _TEMPLATE
        source = own.read_text() if own.is_file() else self._settings[0].get("chat_template")
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
        if not isinstance(source, str) or len(source) > _LONGEST_TEMPLATE:
            return None
        # A template is a file of whoever made the model: it reads nothing but what it is given.
        sandbox = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        sandbox.globals["raise_exception"] = _refuse
        try:
            return sandbox.from_string(source)
        except jinja2.TemplateError as error:
            raise InputError(f"the template of conversations cannot be read: {error}") from error

    def _special(self, name: str) -> str | None:
        word = self._settings[0].get(name)
        text = word.get("content") if isinstance(word, dict) else word
        return text if isinstance(text, str) else None


class Stream:
    """The text of tokens as they come; a character of several tokens comes with the last."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def step(self, token: int) -> str:
        """The text that a token adds."""
        return self._stream.step(self._tokenizer, token) or ""


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
    return settings if isinstance(settings, dict) else {}


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
