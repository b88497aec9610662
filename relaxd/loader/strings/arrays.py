"""Steps that move or select elements, of strings or of numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import TEXT
from relaxd.errors import InputError
from relaxd.loader.strings.registry import Array, Run, list_of, operator, value_of

_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64")


def array_of(values: Sequence[Any], dtype: str) -> Array:
    """A vector of strings, or of numbers of the dtype; raises TypeError for others."""
    if dtype == TEXT:
        if not all(type(value) is str for value in values):
            raise TypeError("a value is no string")
        array = np.empty(len(values), object)
        array[:] = values
        return array
    if dtype not in _DTYPES:
        raise TypeError(f"no step has values of {dtype!r}")
    return np.array(values, dtype)


@operator("constant")
def _constant(attributes: Mapping[str, Any]) -> Run:
    shape = list_of(attributes, "shape", int)
    value = array_of(attributes["values"], attributes["dtype"]).reshape(shape)
    return lambda: (value,)


@operator("identity")
def _identity(attributes: Mapping[str, Any]) -> Run:
    return lambda x: (x,)


@operator("reshape")
def _reshape(attributes: Mapping[str, Any]) -> Run:
    """shape: as of ONNX's Reshape: 0 keeps an axis unless `allowzero`."""
    shape, zero = list_of(attributes, "shape", int), value_of(attributes, "allowzero", bool)

    def run(x: Array) -> tuple[Array]:
        return (x.reshape([x.shape[i] if n == 0 and not zero else n for i, n in enumerate(shape)]),)

    return run


@operator("flatten")
def _flatten(attributes: Mapping[str, Any]) -> Run:
    axis = value_of(attributes, "axis", int)

    def run(x: Array) -> tuple[Array]:
        first = axis % x.ndim if axis < 0 else axis
        return (x.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:])),)

    return run


@operator("squeeze")
def _squeeze(attributes: Mapping[str, Any]) -> Run:
    axes = list_of(attributes, "axes", int)
    return lambda x: (np.squeeze(x, tuple(axes) if axes else None),)


@operator("unsqueeze")
def _unsqueeze(attributes: Mapping[str, Any]) -> Run:
    axes = list_of(attributes, "axes", int)
    return lambda x: (np.expand_dims(x, tuple(axes)),)


@operator("gather")
def _gather(attributes: Mapping[str, Any]) -> Run:
    axis = value_of(attributes, "axis", int)
    return lambda x, indices: (np.take(x, indices.astype(np.int64), axis),)


@operator("columns")
def _columns(attributes: Mapping[str, Any]) -> Run:
    """ONNX's ArrayFeatureExtractor: elements of the last axis; a vector is one row."""

    def run(x: Array, indices: Array) -> tuple[Array]:
        chosen = indices.reshape(-1).astype(np.int64)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < x.shape[-1]:
            raise InputError(f"a column outside of 0 to {x.shape[-1] - 1} is selected")
        return (np.atleast_2d(x)[..., chosen],)

    return run


@operator("concat")
def _concat(attributes: Mapping[str, Any]) -> Run:
    axis = value_of(attributes, "axis", int)
    return lambda *parts: (np.concatenate(parts, axis),)


@operator("where")
def _where(attributes: Mapping[str, Any]) -> Run:
    return lambda condition, x, y: (np.asarray(np.where(condition.astype(bool), x, y)),)


@operator("equal")
def _equal(attributes: Mapping[str, Any]) -> Run:
    return lambda x, y: (np.asarray(np.equal(x, y)).astype(bool),)


@operator("not")
def _not(attributes: Mapping[str, Any]) -> Run:
    return lambda x: (np.logical_not(x),)


@operator("cast")
def _cast(attributes: Mapping[str, Any]) -> Run:
    """From numbers to numbers."""
    dtype = attributes["dtype"]
    if dtype not in _DTYPES:
        raise TypeError(f"no step casts to {dtype!r}")
    return lambda x: (x.astype(dtype),)
