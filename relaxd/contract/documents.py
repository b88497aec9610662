"""Reads untrusted JSON documents: bounded, without NaN, and checked field by field."""

import json
import re
from collections.abc import Mapping
from typing import Any

from relaxd.errors import BundleError

MAX_BYTES = 64 << 20
_HEX = re.compile(r"[0-9a-f]{64}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LONGEST_PART, _LONGEST_NAME, _LONGEST_WORD = 255, 1024, 64


def read_json(data: bytes, name: str) -> Any:
    """The document in a file of that name; raises BundleError for what is not JSON as RFC 8259 has
    it, or nests so deep that it cannot be read.
    """
    if len(data) > MAX_BYTES:
        raise BundleError(f"{name} has {len(data)} bytes, more than {MAX_BYTES}", file=name)
    try:
        # A null is in every document of UTF-16 and UTF-32.
        plain = data.isascii() and b"\0" not in data
        encoding = "ascii" if plain else json.detect_encoding(data)
        document = _DECODER.decode(data.decode(encoding, "surrogatepass"))
        if not plain or b"\\" in data:  # it may hold surrogates, escaped or not
            json.dumps(document, ensure_ascii=False).encode()  # lone surrogates are no text
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"{name} is not JSON: {error}", hint="fetch the bundle again", file=name
        ) from error
    return document


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
"""`json.loads` makes one anew at each call that tells it what to do with a constant."""


def text(value: Any, what: str, longest: int = 4096) -> str:
    """A text of a manifest; raises BundleError."""
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        raise manifest_error(f"{what} is not a text of up to {longest} characters")
    return value


def integer(value: Any, what: str, highest: int = 2**62) -> int:
    """A whole number from 0; raises BundleError."""
    if type(value) is not int or not 0 <= value <= highest:
        raise manifest_error(f"{what} is not a whole number from 0 to {highest}")
    return value


def mapping(value: Any, what: str) -> dict[str, Any]:
    """An object; raises BundleError."""
    if not isinstance(value, dict):
        raise manifest_error(f"{what} is not an object")
    return value


def texts(value: Any, what: str) -> dict[str, str]:
    """An object of short texts; raises BundleError."""
    return {
        text(key, what, 256): text(entry, f"{what}.{key}", 256)
        for key, entry in mapping(value, what).items()
    }


def words(value: Any, what: str) -> tuple[str, ...]:
    """A list of short texts; raises BundleError."""
    texts = tuple(sequence(value, what))
    for word in texts:
        if type(word) is not str or len(word) > _LONGEST_WORD or "\0" in word:
            raise manifest_error(
                f"{what} is not a list of texts of up to {_LONGEST_WORD} characters"
            )
    return texts


def sequence(value: Any, what: str) -> list[Any]:
    """A list; raises BundleError."""
    if not isinstance(value, (list, tuple)):
        raise manifest_error(f"{what} is not a list")
    return list(value)


def sha256(value: Any, what: str) -> str:
    """A sha256 in lower-case hex; raises BundleError."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise manifest_error(f"{what} is not a sha256 in lower-case hex")
    return value


def file_name(value: Any) -> str:
    """A relative path inside a bundle, as any file system takes it; raises BundleError."""
    name = text(value, "a file's name", _LONGEST_NAME)
    if _PLAIN_NAME.fullmatch(name):
        return name
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        raise BundleError(f"the manifest lists {name!r}, which is outside the bundle", file=name)
    longest = max([len(part.encode()) for part in parts])
    if "" in parts or "." in parts or longest > _LONGEST_PART or "\\" in name:
        raise BundleError(
            f"the manifest lists {name[:300]!r}, which is not a valid file name", file=name
        )
    return name


def known_keys(document: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Raises BundleError for a key that this version does not know."""
    if not known.issuperset(document):
        unknown = min(document.keys() - known)
        raise manifest_error(f"{what} has the unknown key {unknown[:100]!r}")


def manifest_error(why: str) -> BundleError:
    """The error for a manifest that cannot be used."""
    return BundleError(f"the manifest is malformed: {why}")
