"""Reads JSON documents into frozen dataclasses by their fields' types."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from relaxd.errors import BundleError

T = TypeVar("T")


def read_typed(kind: type[T], document: Any, what: str) -> T:
    """The document as an instance of a dataclass; raises BundleError that names the field.

    A field that the document lacks takes its default, and a key without a field is passed over:
    documents outlive the releases that wrote them.
    """
    if not isinstance(document, Mapping):
        raise _wrong(what, "an object")
    provided = {
        name: _value(hint, document[name], f"{what}.{name}")
        for name, hint in _hints(kind).items()  # type: ignore[arg-type]
        if name in document
    }
    try:
        return kind(**provided)
    except TypeError as error:
        raise BundleError(f"{what} lacks a field: {error}") from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _value(hint: Any, value: Any, what: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(parts[0], value, what)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(what, "a list")
        return tuple(_value(parts[0], item, f"{what}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(what, "an object")
        return {str(key): _value(parts[1], item, f"{what}.{key}") for key, item in value.items()}
    return _plain(hint, value, what)


def _plain(hint: Any, value: Any, what: str) -> Any:
    if hint is Any:
        return value
    if is_dataclass(hint):
        return read_typed(hint, value, what)  # type: ignore[arg-type]
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise _wrong(what, f"of type {hint.__name__}")
    return value


def _wrong(what: str, wanted: str) -> BundleError:
    return BundleError(f"{what} is not {wanted}", hint="build the model again")
