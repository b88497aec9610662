"""Names of the items of a sequence among the inputs and outputs of a compiled model."""

from collections.abc import Collection, Iterable, Mapping
from itertools import count, takewhile
from typing import Any


def item_name(name: str, index: int) -> str:
    """`boxes_0` for the first item of `boxes`."""
    return f"{name}_{index}"


def items_of(name: str, names: Collection[str]) -> list[str]:
    """The items of a sequence among names, as far as they are numbered without a gap."""
    return [*takewhile(lambda item: item in names, (item_name(name, i) for i in count()))]


def join_items(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Values by the names of a model's own inputs or outputs: a list for one that is there by its
    items, None for one that is not there.
    """
    result = {}
    for name in names:
        items = items_of(name, values)
        result[name] = values.get(name, [values[item] for item in items] or None)
    return result


def split_items(values: Mapping[str, Any]) -> dict[str, Any]:
    """Inverse of `join_items`: lists by their items, nothing for None."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            result |= {item_name(name, index): item for index, item in enumerate(value)}
        elif value is not None:
            result[name] = value
    return result
