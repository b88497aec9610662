"""Steps on the characters of strings: normalization, splitting, joining, matching."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from relaxd.errors import InputError
from relaxd.loader.strings.patterns import compile_pattern
from relaxd.loader.strings.registry import Array, Run, list_of, map_strings, operator, value_of

_START, _END = "\x02", "\x03"
"""The tokens around a text that is marked."""


def lower(text: str) -> str:
    """Lower case, a character for a character, as C's towlower has it."""
    return text.lower() if text.isascii() else "".join(one.lower()[0] for one in text)


def upper(text: str) -> str:
    """Upper case, a character for a character, as C's towupper has it."""
    return text.upper() if text.isascii() else "".join(map(_upper, text))


def _upper(character: str) -> str:
    for form in (character.upper(), character.title()):
        if len(form) == 1:
            return form
    return character


_CASES: dict[str, Callable[[str], str]] = {"LOWER": lower, "UPPER": upper, "NONE": str}


@operator("normalize")
def _normalize(attributes: Mapping[str, Any]) -> Run:
    """ONNX's StringNormalizer of [n] or [1, n]: without the stop words, in one case."""
    change = _CASES[attributes["case"]]
    exact = value_of(attributes, "case_sensitive", bool)
    fold = str if exact else (_CASES["UPPER"] if attributes["case"] == "UPPER" else lower)
    stop_words = {fold(word) for word in list_of(attributes, "stop_words", str)}

    def run(x: Array) -> tuple[Array]:
        if x.ndim > 2 or (x.ndim == 2 and x.shape[0] != 1):
            raise InputError(f"strings of the shape {list(x.shape)} are normalized as [n] or [1,n]")
        if not stop_words:
            return (map_strings(change, x),)
        retained = [change(one) for one in x.reshape(-1) if fold(one) not in stop_words]
        result = np.array(retained or [""], object)
        return (result[None] if x.ndim == 2 else result,)

    return run


@operator("tokenize")
def _tokenize(attributes: Mapping[str, Any]) -> Run:
    """The Tokenizer of com.microsoft: [..., n] to [..., n, tokens], filled up with `pad`.

    pattern: what a token is; separators: what stands between tokens; neither: each character is
    one.
    """
    split = _splitter(attributes)
    shortest = value_of(attributes, "shortest", int)
    mark, pad = value_of(attributes, "mark", bool), value_of(attributes, "pad", str)

    def run(x: Array) -> tuple[Array]:
        rows = [[one for one in split(text) if len(one) >= shortest] for text in x.reshape(-1)]
        if not any(rows):
            return (np.empty((*x.shape, 0), object),)
        rows = [[_START, *row, _END] for row in rows] if mark else rows
        return (_fill(rows, pad).reshape(*x.shape, -1),)

    return run


def _splitter(attributes: Mapping[str, Any]) -> Callable[[str], list[str]]:
    if "pattern" in attributes:
        pattern = compile_pattern(attributes["pattern"], longest=True)
        return lambda text: [match[0] for match in pattern.finditer(text) if match[0]]
    separators = [
        compile_pattern(one, longest=True) for one in list_of(attributes, "separators", str)
    ]
    return (lambda text: list(_parts(text, separators))) if separators else list


def _parts(text: str, separators: list[Any]) -> Iterator[str]:
    """The parts of the text between matches of any separator, the first one first."""
    parts = [text]
    for separator in separators:
        parts = [piece for part in parts for piece in _split(part, separator)]
    return (part for part in parts if part)


def _split(text: str, separator: Any) -> Iterator[str]:
    start = 0
    for match in separator.finditer(text):
        if match[0]:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _fill(rows: list[list[str]], pad: str) -> Array:
    longest = max(map(len, rows), default=0)
    result = np.full((len(rows), longest), pad, object)
    for index, row in enumerate(rows):
        result[index, : len(row)] = row
    return result


@operator("join")
def _join(attributes: Mapping[str, Any]) -> Run:
    """ONNX's StringConcat: each string of one with that of the other, broadcast."""
    return lambda x, y: (np.asarray(np.add(x, y), object),)


@operator("match")
def _match(attributes: Mapping[str, Any]) -> Run:
    """ONNX's RegexFullMatch."""
    pattern = compile_pattern(value_of(attributes, "pattern", str))
    return lambda x: (map_strings(lambda one: pattern.fullmatch(one) is not None, x, bool),)
