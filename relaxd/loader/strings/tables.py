"""Steps that look elements up in a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from relaxd.errors import InputError
from relaxd.loader.strings.arrays import array_of
from relaxd.loader.strings.registry import Array, Run, list_of, map_strings, operator, value_of

UNKNOWN = -1
"""The position of a string that is no key."""


@operator("index")
def _index(attributes: Mapping[str, Any]) -> Run:
    """Strings to int64 positions among `keys`, UNKNOWN for others, which `strict` refuses."""
    keys = list_of(attributes, "keys", str)
    strict = value_of(attributes, "strict", bool)
    positions: dict[str, int] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, position)

    def run(x: Array) -> tuple[Array]:
        result = map_strings(lambda one: positions.get(one, UNKNOWN), x, np.int64)
        if strict and (result == UNKNOWN).any():
            unknown = x[result == UNKNOWN].flat[0]
            raise InputError(
                f"the category {unknown!r} is not one that the model knows",
                hint=f"give one of {', '.join(map(repr, keys[:8]))}"
                + (", ..." if len(keys) > 8 else ""),
            )
        return (result,)

    return run


@operator("map")
def _map(attributes: Mapping[str, Any]) -> Run:
    """Elements, strings or integers, to what `values` has for them among `keys`, else
    `default`.
    """
    keys = list_of(attributes, "keys", str, int)
    dtype = value_of(attributes, "dtype", str)
    values = array_of([*attributes["values"], attributes["default"]], dtype)
    if len(values) != len(keys) + 1:
        raise ValueError(f"{len(keys)} keys are given for {len(values) - 1} values")
    positions: dict[Any, int] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, position)

    def run(x: Array) -> tuple[Array]:
        elements = x.reshape(-1).tolist()
        chosen = np.array([positions.get(one, len(keys)) for one in elements], np.int64)
        return (values[chosen].reshape(x.shape),)

    return run
