"""JSON documents of bodies, and their fields by type."""

import json
from collections.abc import Mapping
from typing import Any

from relaxd.errors import InputError
from relaxd.http.bodies import count_values

_DEEPEST = 100
_GREATEST = (1 << 63) - 1


def read_document(data: bytes, most_values: int) -> Any:
    """The JSON document of a body; raises InputError for one that is none, has more values, is
    nested deeply, or has texts or numbers that cannot be sent on.
    """
    # A value costs up to a hundred times its bytes once it is parsed.
    if (values := count_values(data)) > most_values:
        raise InputError(f"the body has {values} values, the limit is {most_values}")
    try:
        text = data.decode()
    except ValueError as error:
        raise InputError(f"the body is not valid JSON: {error}") from error
    return parse_document(text, "the body")


def parse_document(text: str, name: str) -> Any:
    """The document of a JSON text; raises InputError as `read_document` does, with the name."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not valid JSON: {error}") from error
    _check(document, name)
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no number {name}")


def _check(document: Any, name: str) -> None:
    """Level by level, as a document may be nested more deeply than functions can be."""
    level = [document]
    for _ in range(_DEEPEST):
        containers = [value for value in level if isinstance(value, list | dict)]
        texts = [value for value in level if isinstance(value, str)]
        texts += [name for value in containers if isinstance(value, dict) for name in value]
        if not all(map(_is_text, texts)):
            raise InputError(f"a text of {name} has half of a surrogate pair")
        if not containers:
            return
        level = [
            item
            for value in containers
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, str | list | dict)
        ]
    raise InputError(f"{name} is nested more than {_DEEPEST} times")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_object(document: Any) -> Mapping[str, Any]:
    """The document of a body that has fields; raises InputError for any other."""
    if not isinstance(document, Mapping):
        raise InputError("the body must be a JSON object")
    return document


def read_field(document: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """The value of a field, None for none; raises InputError for one that is of no such type."""
    value = document.get(name)
    if value is not None and type(value) not in kinds:
        raise InputError(f"{name} must be {' or '.join(k.__name__ for k in kinds)}", field=name)
    if type(value) is int and not -_GREATEST <= value <= _GREATEST:
        raise InputError(f"{name} must have 64 bits", field=name)
    return value
