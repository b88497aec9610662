"""The BertTokenizer of ONNX Runtime's extensions, which is not that of Hugging Face's libraries: it
knows the letters of Latin-1 alone, and the pieces of a word stand before the unknown rest of it.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from relaxd.errors import InputError
from relaxd.loader.strings.registry import Array, Run, list_of, operator, value_of

_LONGEST_WORD = 100
_SPACE = "\t\n\r \u00a0\u2000-\u200a\u202f\u205f\u3000"
_REMOVED = (
    "\\x00-\\x08\x0b\x0c\x0e-\x1f\x80-\x9f\u00ad\u0378\u0379\u0380-\u0383\u038b\u038d\u03a2"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206e\u2e9a\u2ef4-\u2efe\u9ffd\u9ffe\ufa6e\ufa6f\ufada-\ufafe"
    "\U0002a6de\U0002b735-\U0002b73e\U0002b81e\U0002b81f\U0002cea2-\U0002ceae\U0002fa1e"
)
_PUNCTUATION = (
    "!-/:-@\\[-`{-~\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u037e\u0387\u2010-\u2027"
    "\u2030-\u2043\u2045-\u2051\u2053-\u205e\u3001-\u3003\u3008-\u3011\u3014-\u301f\u3030\u303d"
)
_CHINESE = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_MARKS = re.compile("[\u0300-\u036f]")
_LATIN = [chr(code) for code in range(0xC0, 0x100)]
_BASES = str.maketrans(
    {
        letter: unicodedata.normalize("NFD", letter)[0]
        for letter in _LATIN
        if len(unicodedata.normalize("NFD", letter)) == 2
    }
)
_LOWER = str.maketrans({chr(code): chr(code).lower() for code in range(0x100)})


@operator("wordpiece")
def _wordpiece(attributes: Mapping[str, Any]) -> Run:
    """One text or two, which belong together, to int64 tokens, types and masks, as `outputs` names
    them: [tokens], or [1, tokens] for a `row`.

    vocabulary: the tokens in their order, of which a later one of the same text counts; lower,
    strip_accents, chinese: as of the operator; longest: the most tokens of one text, None for
    any number.
    """
    encoder = _Encoder(attributes)
    outputs = list_of(attributes, "outputs", str)
    if not {*outputs} <= {"ids", "types", "mask"}:
        raise ValueError("an output is of another release")
    row = value_of(attributes, "row", bool)

    def run(x: Array) -> tuple[Array, ...]:
        texts = x.reshape(-1).tolist()
        if len(texts) not in (2,) if row else len(texts) not in (1, 2):
            wanted = "two texts" if row else "one or two texts"
            raise InputError(f"{wanted} are encoded at once, not {len(texts)}")
        parts = encoder.encode(texts)
        arrays = [np.array(parts[name], np.int64) for name in outputs]
        return tuple(one[None] if row else one for one in arrays)

    return run


class _Encoder:
    def __init__(self, attributes: Mapping[str, Any]) -> None:
        vocabulary = list_of(attributes, "vocabulary", str)
        self._ids = {token: index for index, token in enumerate(vocabulary)}
        self._unknown, self._first, self._end = (
            self._ids[token] for token in ("[UNK]", "[CLS]", "[SEP]")
        )
        self._lower = value_of(attributes, "lower", bool)
        self._strip = value_of(attributes, "strip_accents", bool)
        longest = attributes["longest"]
        self._longest = None if longest is None else value_of(attributes, "longest", int)
        alone = _CHINESE if value_of(attributes, "chinese", bool) else ""
        removed = f"[{_REMOVED}]" if not alone else f"(?![{alone}])[{_REMOVED}]"
        self._removed = re.compile(removed)
        self._words = re.compile(f"[{_PUNCTUATION}{alone}]|[^{_SPACE}{_PUNCTUATION}{alone}]+")

    def encode(self, texts: list[str]) -> dict[str, list[int]]:
        """Tokens, types and mask of one text or two."""
        parts = [self._tokens(text) for text in texts]
        if self._longest is not None and len(parts) == 1:  # two are never cut
            parts = [parts[0][: max(self._longest - 2, 0)]]
        ids, types = [self._first], [0]
        for kind, part in enumerate(parts):
            ids += [*part, self._end]
            types += [kind] * (len(part) + 1)
        return {"ids": ids, "types": types, "mask": [1] * len(ids)}

    def _tokens(self, text: str) -> list[int]:
        text = _MARKS.sub("", text.translate(_BASES)) if self._strip else text
        text = text.translate(_LOWER) if self._lower else text
        words = self._words.findall(self._removed.sub("", text))
        return [token for word in words for token in self._pieces(word)]

    def _pieces(self, word: str) -> list[int]:
        """The longest pieces of the vocabulary, then the unknown token for a rest."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        result, start = list[int](), 0
        while start < len(word):
            before = "##" if start else ""
            for end in range(len(word), start, -1):
                if (token := self._ids.get(before + word[start:end])) is not None:
                    break
            else:
                return [*result, self._unknown]
            result.append(token)
            start = end
        return result
