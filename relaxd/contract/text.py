"""Texts and documents that every database, file and answer takes: no NUL, no lone surrogate."""

import math
from typing import Any

_DEEPEST = 100
_TOO_DEEP = "[left out: nested too deeply]"


def clean(text: str) -> str:
    """The text, with escapes for NULs and for the surrogates that stand for bytes that are no
    UTF-8.
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def sanitize(document: Any, depth: int = 0) -> Any:
    """A JSON document with every text clean, and None for numbers that JSON lacks."""
    if depth > _DEEPEST:
        return _TOO_DEEP
    match document:
        case str():
            # A StrEnum is a text here, as in JSON.
            return clean(str(document))
        case dict():
            return {
                clean(key) if isinstance(key, str) else key: sanitize(value, depth + 1)
                for key, value in document.items()
            }
        case list() | tuple():
            return [sanitize(value, depth + 1) for value in document]
        case float() if not math.isfinite(document):
            return None
    return document
