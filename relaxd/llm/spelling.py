"""The bytes of text that each token of a vocabulary stands for."""

import json
import re
from functools import cached_property
from typing import Any

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


class Spelling:
    """The bytes of single tokens, by the decoder of a `tokenizers.Tokenizer`: ByteLevel, or any
    other, with ByteFallback and a mark in place of spaces.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def spell(self, token: int) -> bytes:
        """The bytes of a token; none of one that the tokenizer lacks."""
        word: str | None = self._tokenizer.id_to_token(token)
        if word is None:
            return b""
        if token in self._added:
            return word.encode()
        kinds = {decoder.get("type") for decoder in self._decoders}
        if "ByteLevel" in kinds:
            return b"".join(_BYTE_LEVEL.get(letter, letter.encode()) for letter in word)
        if "ByteFallback" in kinds and (byte := _BYTE.fullmatch(word)):
            return bytes([int(byte[1], 16)])
        for mark, content in self._marks:
            word = word.replace(mark, content)
        return word.encode()

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._tokenizer.get_added_tokens_decoder())

    @cached_property
    def _decoders(self) -> list[dict[str, Any]]:
        if self._tokenizer.decoder is None:
            return []
        decoder = json.loads(self._tokenizer.decoder.__getstate__())
        decoders: list[dict[str, Any]] = decoder.get("decoders", [decoder])
        return decoders

    @cached_property
    def _marks(self) -> list[tuple[str, str]]:
        marks = []
        for decoder in self._decoders:
            if decoder.get("type") == "Metaspace":
                marks.append((decoder["replacement"], " "))
            pattern = decoder.get("pattern")
            if decoder.get("type") == "Replace" and isinstance(pattern, dict):
                marks.append((pattern.get("String", ""), decoder["content"]))
        return [(mark, content) for mark, content in marks if mark]


def _byte_level() -> dict[str, bytes]:
    """GPT-2's letters of bytes: those that can be printed are their own, the others follow from
    code point 256 on.
    """
    own = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in own)
    letters = {chr(byte): bytes([byte]) for byte in own}
    return letters | {chr(256 + number): bytes([byte]) for number, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()
