"""Draws the inputs of a point: numbers that exercise a model without breaking its contract."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from compiler.verify.points import Point, shape_at
from relaxd.contract.tensors import TensorSpec
from relaxd.loader.narrow import dtype_of

Arrays = dict[str, np.ndarray[Any, Any]]
Bounds = Mapping[str, tuple[int, int]]
"""The least and the greatest value of integer inputs that index something, by name."""


def draw(point: Point, inputs: Iterable[TensorSpec], bounds: Bounds, seed: int) -> Arrays:
    """Inputs at the point: floats are normal, masks a run of ones, integers that index something
    within `bounds`, others small.
    """
    random = np.random.default_rng([seed, *point.dims.values()])
    return {
        spec.name: _draw_one(spec, shape_at(spec, point), bounds.get(spec.name), random)
        for spec in inputs
    }


def is_mask(spec: TensorSpec, bounded: Collection[str]) -> bool:
    """Whether the input is taken for a mask: by its name, unless it is one of those that index
    something.
    """
    named = "mask" in spec.name.lower() and "float" not in spec.dtype
    return named and spec.name not in bounded


def _draw_one(
    spec: TensorSpec,
    shape: tuple[int, ...],
    bounds: tuple[int, int] | None,
    random: np.random.Generator,
) -> np.ndarray[Any, Any]:
    if "float" in spec.dtype:
        values = np.asarray(random.standard_normal(shape, dtype=np.float32))
        # Its numbers are powers of two.
        values = np.exp2(values.round()) if spec.dtype == "float8_e8m0fnu" else values
        return values.astype(dtype_of(spec.dtype))
    if is_mask(spec, () if bounds is None else (spec.name,)):
        return _mask(shape, random).astype(dtype_of(spec.dtype))
    if spec.dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    low, high = bounds or _small(ml_dtypes.iinfo(spec.dtype))
    # Where the smallest shape leaves nothing to index, the first is there in every other.
    return np.asarray(random.integers(low, max(low, high), size=shape, endpoint=True)).astype(
        dtype_of(spec.dtype)
    )


def _small(info: Any) -> tuple[int, int]:
    return (int(info.min), int(info.max)) if info.bits <= 8 else (0, 9)


def _mask(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Ones, then zeros, along the last axis, never zeros alone: a row that masks everything has no
    defined softmax.
    """
    if not shape:
        return np.ones(shape)
    lengths = random.integers(1, max(shape[-1], 1), size=(*shape[:-1], 1), endpoint=True)
    return np.asarray(np.arange(shape[-1]) < lengths)
