"""The points of the dims' ranges at which a library is tried, and the inputs drawn for them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import VerifyError
from compiler.verify import npz as stored
from relaxd.contract.dims import Dim
from relaxd.contract.tensors import TensorSpec

Arrays = dict[str, np.ndarray[Any, Any]]
Bounds = Mapping[str, tuple[int, int]]

_INTERIOR_POINTS = 2
_MOST_SINGLE_DIMS = 4
_STEPS_OFF = (3, 4)
"""Where sizes begin at 1, a vector of 4 and one more."""
_UNBOUNDED_VOLUME = 8192
_UNBOUNDED_RANGE = (8, 128)


@dataclass(frozen=True)
class Point:
    """A value for every dim that an input carries."""

    label: str
    dims: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The form in numerics.json and profile.json."""
        return {"label": self.label, "dims": dict(self.dims)}


def points(inputs: Sequence[TensorSpec], dims: Iterable[Dim], seed: int) -> tuple[Point, ...]:
    """`min`, `opt`, `max`, seeded interior points, and each of a few dims at its maximum alone;
    cheapest first, each point once.

    A dim without a maximum is tried up to a size that shrinks with the number of such dims.
    """
    used, tops = _ranges(inputs, dims)
    random = np.random.default_rng(seed)
    interior = [
        Point(
            "opt",
            {
                dim.name: dim.opt if dim.opt is not None else _between(dim, tops[dim.name], 0.5)
                for dim in used
            },
        ),
        *(
            Point(
                f"random-{index}",
                {dim.name: _between(dim, tops[dim.name], random.uniform(0.1, 0.9)) for dim in used},
            )
            for index in range(1, _INTERIOR_POINTS + 1)
        ),
    ]
    return _cheapest_first(interior, used, tops, inputs)


def points_nearby(inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> tuple[Point, ...]:
    """For a slow run: as `points`, but what is inside lies a few steps off the minimum, one dim or
    all of them; five sizes at least.

    The small sizes come first, so that a run that is cut short has met the edges of vectors and
    tiles.
    """
    used, tops = _ranges(inputs, dims)
    lows = {dim.name: dim.lowest for dim in used}
    off = {
        steps: {dim.name: min(dim.lowest + steps * dim.multiple, tops[dim.name]) for dim in used}
        for steps in (1, *_STEPS_OFF)
    }
    interior = [
        *(
            Point(f"step-{dim.name}", {**lows, dim.name: off[1][dim.name]})
            for dim in used
            if len(used) <= _MOST_SINGLE_DIMS
        ),
        *(Point(f"steps-{steps}", off[steps]) for steps in _STEPS_OFF),
        *(
            [Point("opt", {dim.name: dim.opt or dim.lowest for dim in used})]
            if any(dim.opt for dim in used)
            else []
        ),
    ]
    return _cheapest_first(interior, used, tops, inputs)


def _ranges(inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> tuple[list[Dim], dict[str, int]]:
    """The dims that an input carries, and the greatest size at which each is tried."""
    carried = {name for spec in inputs for axis in spec.shape for name in axis.dims}
    used = sorted((dim for dim in dims if dim.name in carried), key=lambda dim: dim.name)
    unbounded = sum(dim.max is None for dim in used)
    return used, {dim.name: _top(dim, unbounded) for dim in used}


def _cheapest_first(
    interior: Sequence[Point],
    used: Sequence[Dim],
    tops: Mapping[str, int],
    inputs: Sequence[TensorSpec],
) -> tuple[Point, ...]:
    """The interior points and the ends of the ranges, each point once, by the memory of the inputs
    there.
    """
    lows = {dim.name: dim.lowest for dim in used}
    candidates = [
        Point("min", lows),
        *interior,
        *(
            Point(f"max-{dim.name}", {**lows, dim.name: tops[dim.name]})
            for dim in used
            if 1 < len(used) <= _MOST_SINGLE_DIMS
        ),
        Point("max", tops),
    ]
    once: dict[tuple[int, ...], Point] = {}
    for point in candidates:
        once.setdefault(tuple(point.dims.values()), point)
    return tuple(sorted(once.values(), key=lambda point: bytes_of(point, inputs)))


def bytes_of(point: Point, inputs: Iterable[TensorSpec]) -> int:
    """How much memory the inputs take at the point, in bytes."""
    return sum(math.prod(shape_at(spec, point)) * _itemsize(spec.dtype) for spec in inputs)


def shape_at(spec: TensorSpec, point: Point) -> tuple[int, ...]:
    """The input's shape at the point; an axis whose expression is negative there gives a negative
    size.
    """
    return tuple(axis.evaluate(point.dims) for axis in spec.shape)


def draw(point: Point, inputs: Iterable[TensorSpec], bounds: Bounds, seed: int) -> Arrays:
    """Inputs at the point: floats are normal, masks a run of ones, integers that index something
    within `bounds`, others small.
    """
    random = np.random.default_rng([seed, *point.dims.values()])
    return {
        spec.name: _draw_one(spec, shape_at(spec, point), bounds.get(spec.name), random)
        for spec in inputs
    }


def from_npz(path: Path, inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> tuple[Point, Arrays]:
    """The request's own sample and the point it lies at; raises VerifyError naming the array at
    fault.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise _bad_sample(f"the samples are not an .npz of arrays: {error}") from error
    for spec in inputs:
        if spec.name not in arrays:
            raise _bad_sample(f"the samples have no array {spec.name!r}")
        if arrays[spec.name].dtype != np.dtype(_storage(spec.dtype)):
            raise _bad_sample(
                f"sample {spec.name!r} is {arrays[spec.name].dtype}, the input is {spec.dtype}"
            )
        if arrays[spec.name].ndim != len(spec.shape):
            raise _bad_sample(
                f"sample {spec.name!r} has rank {arrays[spec.name].ndim}, the input is {spec.text}"
            )
    chosen = {spec.name: stored.typed(arrays[spec.name], spec.dtype) for spec in inputs}
    return Point("sample", _solve(chosen, inputs, {dim.name: dim for dim in dims})), chosen


def fitted(sample: Arrays, point: Point, inputs: Iterable[TensorSpec]) -> Arrays:
    """The sample's floats at the point: every axis cut, or repeated, to its size there."""
    found = {}
    for spec in inputs:
        array, shape = sample[spec.name], shape_at(spec, point)
        if "float" in spec.dtype and array.size:
            kept = (
                np.arange(size) % extent for size, extent in zip(shape, array.shape, strict=True)
            )
            found[spec.name] = array[np.ix_(*kept)].reshape(shape)
    return found


def _solve(arrays: Arrays, inputs: Sequence[TensorSpec], dims: Mapping[str, Dim]) -> dict[str, int]:
    axes = [
        (spec.name, axis, size)
        for spec in inputs
        for axis, size in zip(spec.shape, arrays[spec.name].shape, strict=True)
    ]
    bound: dict[str, int] = {}
    for _ in axes:
        for _, axis, size in axes:
            if solved := axis.solve(size, bound):
                bound[solved[0]] = solved[1]
    for name, axis, size in axes:
        if not axis.dims <= bound.keys() or axis.evaluate(bound) != size:
            raise _bad_sample(f"sample {name!r} has an axis of {size} where the input has {axis}")
    for dim_name, value in bound.items():
        if not dims[dim_name].admits(value):
            raise _bad_sample(
                f"the samples have {dim_name}={value}, allowed is {dims[dim_name].describe()}"
            )
    return dict(sorted(bound.items()))


def _bad_sample(message: str) -> VerifyError:
    return VerifyError(
        message,
        reason="bad_samples",
        field="samples",
        hint="give an .npz with one array an input, within the declared dims",
    )


def _top(dim: Dim, unbounded: int) -> int:
    if dim.highest is not None:
        return dim.highest
    low, high = _UNBOUNDED_RANGE
    room = min(max(int(_UNBOUNDED_VOLUME ** (1 / unbounded)), low), high)
    room = max(room, 2 * dim.lowest, dim.opt or 0)
    return room // dim.multiple * dim.multiple or dim.multiple


def _between(dim: Dim, top: int, fraction: float) -> int:
    """An allowed value part of the way up, on a logarithmic scale: small sizes differ more than
    large ones.
    """
    low = dim.lowest
    value = math.exp(math.log(low + 1) + (math.log(top + 1) - math.log(low + 1)) * fraction) - 1
    return min(low + round((value - low) / dim.multiple) * dim.multiple, top)


def _draw_one(
    spec: TensorSpec,
    shape: tuple[int, ...],
    bounds: tuple[int, int] | None,
    random: np.random.Generator,
) -> np.ndarray[Any, Any]:
    if "float" in spec.dtype:
        values = random.standard_normal(shape, dtype=np.float32)
        return np.asarray(values).astype(_numpy_dtype(spec.dtype))
    if bounds is None and "mask" in spec.name.lower():
        return _mask(shape, random).astype(spec.dtype)
    if spec.dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    low, high = bounds or _small(np.iinfo(spec.dtype))
    # Where the smallest shape leaves nothing to index, the first is there in every other.
    return np.asarray(random.integers(low, max(low, high), size=shape, endpoint=True)).astype(
        spec.dtype
    )


def _small(info: np.iinfo[Any]) -> tuple[int, int]:
    return (int(info.min), int(info.max)) if info.bits == 8 else (0, 9)


def _mask(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Ones, then zeros, along the last axis, never zeros alone: a row that masks everything has no
    defined softmax.
    """
    if not shape:
        return np.ones(shape)
    lengths = random.integers(1, max(shape[-1], 1), size=(*shape[:-1], 1), endpoint=True)
    return np.asarray(np.arange(shape[-1]) < lengths)


def _numpy_dtype(dtype: str) -> Any:
    if dtype != "bfloat16":
        return np.dtype(dtype)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _storage(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype


def _itemsize(dtype: str) -> int:
    return np.dtype(_storage(dtype)).itemsize
