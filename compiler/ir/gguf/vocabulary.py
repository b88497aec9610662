"""The tokens in a GGUF file's metadata, checked."""

from enum import IntEnum
from functools import cached_property
from typing import Any

from compiler.ir.gguf.file import Gguf


class Kind(IntEnum):
    """The kind of a token, by llama.cpp's numbers; `OWN` is one that the tokenizer's user added."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    OWN = 4
    UNUSED = 5
    BYTE = 6


class LeftOut(Exception):
    """Why no tokenizer can be made."""


class Vocabulary:
    """The entries `tokenizer.ggml.*` of a file; a property raises LeftOut where they contradict
    themselves.
    """

    def __init__(self, file: Gguf) -> None:
        self._metadata = file.metadata

    def entry(self, name: str) -> Any:
        """An entry as the file has it."""
        return self._metadata.get(f"tokenizer.ggml.{name}")

    def flag(self, name: str, default: bool) -> bool:
        """An entry that says yes or no."""
        value = self.entry(name)
        return value if isinstance(value, bool) else default

    def token(self, name: str) -> str | None:
        """The text of a token with a purpose, such as `eos`."""
        number, texts = self.entry(f"{name}_token_id"), self.entry("tokens")
        if type(number) is not int or not isinstance(texts, list) or not 0 <= number < len(texts):
            return None
        return texts[number] if isinstance(texts[number], str) else None

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        texts = self.entry(name)
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise LeftOut(f"tokenizer.ggml.{name} must be a list of strings")
        return texts

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The tokens' numbers by their texts."""
        texts = self.texts("tokens")
        numbers = {text: number for number, text in enumerate(texts)}
        if len(numbers) < len(texts):
            raise LeftOut("two tokens have the same text")
        return numbers

    @cached_property
    def kinds(self) -> list[int]:
        """A `Kind` for each token."""
        return self._each("token_type", int, Kind.NORMAL)

    @cached_property
    def scores(self) -> list[float]:
        """A number for each token; of two pieces, that of the greater is joined first."""
        return self._each("scores", float, None)

    def _each(self, name: str, kind: type, default: Any) -> list[Any]:
        values, count = self.entry(name), len(self.numbers)
        if values is None and default is not None:
            return [default] * count
        if not isinstance(values, list) or len(values) != count or {*map(type, values)} - {kind}:
            raise LeftOut(f"tokenizer.ggml.{name} does not have one number for each token")
        return values
