"""Draws the inputs of a point: numbers that exercise a model without breaking its contract."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from compiler.ir.shapes.index_bounds import Limit, Limits, demands, ends_at, evaluate_end
from compiler.verify.inputs.distributions import Distribution, sample, sample_tokens, takes_tokens
from compiler.verify.inputs.points import NEGATIVE, ZERO, Point, shape_at
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.loader.tensors.element_types import dtype_of

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

_FROM_END = 1 / 16
"""The share of indices that count from the end, where they may."""
_POSITIONS = re.compile(r"position|pos_ids")
_LENGTHS = re.compile(r"(^|_)(len|lens|length|lengths)$")
_MOST_RANKED = 1 << 22
"""Distinct indices are the first of a shuffled range of up to so many numbers."""


def draw(
    point: Point,
    inputs: Sequence[TensorSpec],
    limits: Limits,
    seed: int,
    wanted: Distribution = Distribution.NOISE,
) -> Arrays:
    """Inputs at the point: floats of the wanted distribution, masks a run of ones, positions a
    count, lengths up to the longest axis, values that `limits` speak of legal ones, other integers
    small.
    """
    random = np.random.default_rng([seed, *point.dims.values()])
    longest = max((max(shape_at(spec, point)[1:], default=1) for spec in inputs), default=1)
    result = {}
    for spec in inputs:
        own = limits.get(spec.name, ())
        values = _by_name(spec, point, longest, random) if not own else None
        if values is None:
            values = _draw_one(spec, point, own, wanted, random)
        result[spec.name] = values
    return result


def highest(point: Point, inputs: Iterable[TensorSpec], limits: Limits) -> list[int]:
    """The greatest legal values of inputs of integers that have one."""
    bounded = [spec for spec in inputs if spec.name in limits and "int" in spec.dtype]
    ends = [ends_at(limits[spec.name], point.dims, shape_at(spec, point)) for spec in bounded]
    return [int(high.max()) for _, high in ends]


def is_mask(spec: TensorSpec, limited: Collection[str]) -> bool:
    """Take the input for a mask by its name, unless it is one of those whose values
    are limited.
    """
    return "mask" in spec.name.lower() and spec.name not in limited


def objection(point: Point, inputs: Iterable[TensorSpec], limits: Limits) -> str | None:
    """Why no values are legal at the point, None where some are."""
    for spec in inputs:
        shape, own = shape_at(spec, point), demands(limits.get(spec.name, ()))
        if 0 in shape or not own:
            continue
        low, high = ends_at(own, point.dims, shape)
        if (low > high).any() and not all(isinstance(limit.high, int) for limit in own):
            return f"no value of {spec.name!r} is legal: it would index an axis without elements"
        lengths = [evaluate_end(end, point.dims) for limit in own if (end := limit.length)]
        if lengths and shape[-1] > min(lengths):
            return f"{spec.name!r} has {shape[-1]} elements, {min(lengths)} are legal"
    return None


def within(array: Array, point: Point, limits: Sequence[Limit]) -> Array:
    """The array with every value moved to the nearest legal one at the point."""
    limits = demands(limits)
    if not limits:
        return array
    low, high = _ends(limits, point, array.shape)
    scale = _scale(limits)
    return np.asarray(array.clip(low * scale, high * scale)).astype(array.dtype)


def _draw_one(
    spec: TensorSpec,
    point: Point,
    limits: Sequence[Limit],
    wanted: Distribution,
    random: np.random.Generator,
) -> Array:
    shape = shape_at(spec, point)
    legal = demands(limits) or [limit for limit in limits if "int" in spec.dtype]
    if legal:
        return _legal(spec, point, legal, wanted, random)
    shown = sample(spec, shape, wanted, random)
    if shown is not None:
        return shown.astype(dtype_of(spec.dtype))
    if "float" in spec.dtype:
        values = np.asarray(random.standard_normal(shape, dtype=np.float32))
        # Its numbers are powers of two.
        values = np.exp2(values.round()) if spec.dtype == "float8_e8m0fnu" else values
        return values.astype(dtype_of(spec.dtype))
    if spec.dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    low, high = _small(ml_dtypes.iinfo(spec.dtype))
    numbers = random.integers(low, high, size=shape, endpoint=True)
    return np.asarray(numbers).astype(dtype_of(spec.dtype))


def _by_name(
    spec: TensorSpec, point: Point, longest: int, random: np.random.Generator
) -> Array | None:
    """Values for an input whose name says what it is, None for any other.

    longest: the greatest size of an axis behind the batch, which lengths count along.
    """
    shape, name, dtype = shape_at(spec, point), spec.name.lower(), dtype_of(spec.dtype)
    if "mask" in name:
        return _mask(shape, random).astype(dtype)
    if "int" not in spec.dtype:
        return None
    if _POSITIONS.search(name) and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
    if _LENGTHS.search(name) and len(shape) <= 1:
        lengths = np.asarray(random.integers(1, longest, size=shape, endpoint=True))
        if lengths.size > 1:
            lengths[0] = longest
        return lengths.astype(dtype)
    return None


def _legal(
    spec: TensorSpec,
    point: Point,
    limits: Sequence[Limit],
    wanted: Distribution,
    random: np.random.Generator,
) -> Array:
    """Values that every limit allows."""
    shape, dtype = shape_at(spec, point), dtype_of(spec.dtype)
    low, high = _ends(limits, point, shape)
    if all(limit.signed for limit in limits):
        low, high = _signed_ends(point, low, high)
    if "float" in spec.dtype and not all(limit.integral for limit in limits):
        real = np.asarray(random.uniform(low, high, size=shape)) * _scale(limits)
        return _round_coordinates(real, limits).astype(dtype)
    for limit in limits:
        if limit.total is not None:
            total = evaluate_end(limit.total, point.dims)
            return _draw_terms(total, shape, random).astype(dtype)
        if limit.elements is not None:
            elements = evaluate_end(limit.elements, point.dims)
            return _draw_factors(elements, shape, random).astype(dtype)
    if wanted is Distribution.TEXT and low.size == 1 and takes_tokens(int(low[0]), int(high[0])):
        return sample_tokens(int(low[0]), int(high[0]), shape, random).astype(dtype)
    values = _distinct(low, high, shape, limits, random)
    if values is None:
        values = np.asarray(random.integers(low, high, size=shape, endpoint=True))
    if any(limit.nonzero for limit in limits):
        values = np.where(values == 0, np.where(high > 0, 1, -1), values).reshape(shape)
    if all(limit.from_end for limit in limits):
        backward = random.random(shape) < _FROM_END
        values = np.where(backward, values - high - 1, values)
    return values.astype(dtype)


def _signed_ends(point: Point, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends for integers of either sign at the point."""
    if point.label == NEGATIVE:
        return low, np.maximum(low, np.minimum(high, -1))
    if point.label == ZERO:
        zero = np.clip(0, low, high)
        return zero, zero
    return low, high


def _ends(limits: Sequence[Limit], point: Point, shape: Sequence[int]) -> tuple[Array, Array]:
    low, high = ends_at(limits, point.dims, shape)
    # Where the least extent that an import knows leaves nothing to index, the first is there in
    # every other.
    return low, np.maximum(low, high)


def _scale(limits: Sequence[Limit]) -> Array:
    """The scale of each coordinate's values."""
    last = max((limit.coordinate or 0 for limit in limits), default=0)
    scale = np.ones(last + 1 if any(limit.coordinate is not None for limit in limits) else 1)
    for limit in limits:
        if limit.scale != 1:
            scale[slice(None) if limit.coordinate is None else limit.coordinate] = limit.scale
    return scale


def _round_coordinates(real: Array, limits: Sequence[Limit]) -> Array:
    for limit in limits:
        if limit.integral and limit.coordinate is not None:
            real[..., limit.coordinate] = real[..., limit.coordinate].round()
    return real


def _draw_factors(elements: int, shape: Sequence[int], random: np.random.Generator) -> Array:
    """A shape of so many elements: their prime factors in random positions."""
    factors = np.ones(shape, np.int64)
    rest, prime = elements, 2
    if not factors.size:
        return factors
    if elements == 0:
        factors.flat[0] = 0
        return factors
    while rest > 1:
        prime = prime if prime * prime <= rest else rest
        if rest % prime:
            prime += 1
            continue
        factors.flat[int(random.integers(factors.size))] *= prime
        rest //= prime
    return factors


def _draw_terms(total: int, shape: Sequence[int], random: np.random.Generator) -> Array:
    """Numbers of 0 and more that add up to the total along the last axis."""
    parts = shape[-1] if shape else 1
    cuts = np.sort(random.integers(0, total, size=(*shape[:-1], max(parts - 1, 0)), endpoint=True))
    edges = np.zeros((*shape[:-1], 1)), cuts, np.full((*shape[:-1], 1), total)
    return np.diff(np.concatenate(edges, axis=-1)).reshape(shape)


def _distinct(
    low: Array,
    high: Array,
    shape: tuple[int, ...],
    limits: Sequence[Limit],
    random: np.random.Generator,
) -> Array | None:
    """Values that do not occur twice along the axis that the limits name; None where none does, or
    there are too few or too many values.
    """
    axis = next((limit.distinct for limit in limits if limit.distinct is not None), None)
    if axis is None:
        return None
    extents = high - low + 1
    if len(extents) > 1 or limits[0].coordinate is not None:
        count, room = int(np.prod(shape[:-1])), int(np.prod(extents.astype(np.float64)))
        if not count <= room <= _MOST_RANKED:
            return None
        chosen = random.permutation(room)[:count]
        tuples = np.stack(np.unravel_index(chosen, tuple(extents)), axis=-1)
        return np.asarray(tuples.reshape(shape) + low)
    room, lines = int(extents[0]), int(np.prod(shape)) // max(shape[axis], 1)
    if shape[axis] > room or room * lines > _MOST_RANKED:
        return None
    ranked = random.random((*shape[:axis], room, *shape[axis + 1 :])).argsort(axis=axis)
    return np.asarray(ranked.take(np.arange(shape[axis]), axis=axis) + low)


def _small(info: Any) -> tuple[int, int]:
    return (int(info.min), int(info.max)) if info.bits <= 8 else (0, 9)


def _mask(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Ones, then zeros, along the last axis, never zeros alone: a row that masks everything has no
    defined softmax. Of several samples the first has ones alone.
    """
    if not shape:
        return np.ones(shape)
    lengths = random.integers(1, max(shape[-1], 1), size=(*shape[:-1], 1), endpoint=True)
    if len(shape) > 1 and shape[0] > 1:
        lengths[0] = shape[-1]
    return np.asarray(np.arange(shape[-1]) < lengths)
