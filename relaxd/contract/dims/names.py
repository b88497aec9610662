"""Names of dims: which texts may be one, how axis expressions write them, and the identifiers that
stand for them inside a compiler.

A dim is called what the model's file calls it, whatever characters that takes. In an axis
expression a name that is no plain identifier stands in double quotes, in which a backslash comes
before a quote or another backslash: `2 * "seq-len" + 1`. Where a name stands alone, as a key of
JSON or before the `=` of an option, it needs no quotes.

TVM and C know a dim by its identifier. A plain name is its own; any other is written out in
letters, digits and underscores, from which the name is read back. No two names have the same
identifier.
"""

import keyword
import re

QUOTED = re.compile(r'"(?:[^"\\]|\\["\\])*"')
"""A name in quotes, as axis expressions have it."""
LONGEST_NAME = 256
_ESCAPED = re.compile(r"\\(.)")
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks that reorder the text around them, half characters."""

_PREFIX = "dim__"
_SPELLED = re.compile(r"[^A-Za-z0-9]")
_HEX = "[0-9a-f]{1,5}|10[0-9a-f]{4}"
_CODE = re.compile(f"_({_HEX})_")
_IDENTIFIER_OF_OTHER = re.compile(rf"(?<![A-Za-z0-9_]){_PREFIX}(?:[A-Za-z0-9]|_(?:{_HEX})_)+")


def is_plain(name: str) -> bool:
    """True if axis expressions have the name without quotes: it is an identifier of ASCII letters,
    and no keyword of Python.
    """
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def objection_to(name: str) -> str | None:
    """Why no dim may be called so; None where one may."""
    if not name.strip():
        return "a dim's name is not empty"
    if len(name) > LONGEST_NAME:
        return f"a dim's name has at most {LONGEST_NAME} characters"
    match = UNPRINTABLE.search(name)
    return match and f"a dim's name has no control character such as {match[0]!r}"


def clean_comment(text: str) -> str:
    """A model's own words, fit for a comment of C, Kotlin or Swift."""
    return re.sub(r"[*]/|/[*]", "_", UNPRINTABLE.sub("_", text))


def quote_name(name: str) -> str:
    """The name as axis expressions write it: in quotes unless it is plain."""
    if is_plain(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def option_name(name: str) -> str:
    """The name as an option of the command line states it: without quotes where it can be read
    without.
    """
    return name if unquote_name(name) == name else quote_name(name)


def unquote_name(text: str) -> str:
    """The name that a text states: what is in its quotes, exactly; else the text without the
    spaces around it.
    """
    text = text.strip()
    return _ESCAPED.sub(r"\1", text[1:-1]) if QUOTED.fullmatch(text) else text


def identifier_of(name: str) -> str:
    """The identifier that stands for the name inside a compiler."""
    if is_plain(name) and not name.startswith(_PREFIX):
        return name
    return _PREFIX + _SPELLED.sub(lambda match: f"_{ord(match[0]):x}_", name)


def name_of(identifier: str) -> str:
    """Inverse of `identifier_of`; an identifier that stands for no other name is a name."""
    if not _IDENTIFIER_OF_OTHER.fullmatch(identifier):
        return identifier
    name = _CODE.sub(lambda match: chr(int(match[1], 16)), identifier.removeprefix(_PREFIX))
    is_one = identifier_of(name) == identifier and objection_to(name) is None
    return name if is_one else identifier


def with_names(message: str) -> str:
    """A message about identifiers, with the names that they stand for."""
    if _PREFIX not in message:
        return message
    return _IDENTIFIER_OF_OTHER.sub(lambda match: quote_name(name_of(match[0])), message)
