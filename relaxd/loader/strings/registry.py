"""The operators of steps on strings, by name."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from relaxd.errors import LoadContractError

Array: TypeAlias = np.ndarray[Any, Any]
"""Of numbers, or of objects that are `str`."""
Run: TypeAlias = Callable[..., tuple[Array, ...]]
"""The values of a step's inputs to those of its outputs."""
Make: TypeAlias = Callable[[Mapping[str, Any]], Run]
"""A step's attributes to what runs it; raises ValueError, TypeError or KeyError for attributes that
it cannot have."""

OPERATORS: dict[str, Make] = {}


def operator(name: str) -> Callable[[Make], Make]:
    """Register what makes the steps of that name."""

    def register(make: Make) -> Make:
        OPERATORS[name] = make
        return make

    return register


def map_strings(function: Callable[[str], Any], array: Array, dtype: Any = object) -> Array:
    """An array of the same shape with the function of each element."""
    result = np.empty(array.shape, dtype)
    result.reshape(-1)[...] = [function(one) for one in array.reshape(-1)]
    return result


def explain_lack(what: str, package: str, otherwise: str = "") -> LoadContractError:
    """The error where a package is not installed that steps need; otherwise: what else to do."""
    return LoadContractError(
        what, need=f"the package {package}", have="none", hint=f"pip install {package}{otherwise}"
    )


def list_of(attributes: Mapping[str, Any], name: str, *kinds: type) -> list[Any]:
    """A list among the attributes, each of whose elements has one of the types."""
    values = attributes[name]
    if not isinstance(values, list) or not all(type(value) in kinds for value in values):
        raise TypeError(f"{name} is not a list of {' or '.join(kind.__name__ for kind in kinds)}")
    return values


def value_of(attributes: Mapping[str, Any], name: str, kind: type) -> Any:
    """One attribute of that type."""
    value = attributes[name]
    if type(value) is not kind:
        raise TypeError(f"{name} is not of type {kind.__name__}")
    return value
