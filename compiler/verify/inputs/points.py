"""The points of the dims' ranges at which a library is tried."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.verify.inputs.array_file import itemsize
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec

TILE_EDGES = (4, 8, 16, 32, 48, 64)
"""Sizes around which a kernel changes its path where its tiles are not known: rows of a register
tile, one to four vectors, blocks of rows."""

NEGATIVE, ZERO = "negative", "zero"
"""Labels of points at which integers of either sign are negative, and 0."""

_RANDOM_POINTS = 2
_MOST_SINGLE_DIMS = 4
_STEPS_OFF = (3, 4)
"""Where sizes begin at 1, a vector of 4 and one more."""
_UNBOUNDED_RANGE = (8, 640)
_UNBOUNDED_VOLUME = 1 << 19
"""What dims without a maximum are tried up to, alone and multiplied: an image of 640 x 640 and more
tokens than most encoders take. The budgets of time and memory decide how far runs really get."""


@dataclass(frozen=True)
class Point:
    """A value for every dim that an input carries."""

    label: str
    dims: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The form in numerics.json and profile.json."""
        return {"label": self.label, "dims": dict(self.dims)}


def points(
    inputs: Sequence[TensorSpec],
    dims: Iterable[Dim],
    seed: int,
    edges: Sequence[int] = TILE_EDGES,
) -> tuple[Point, ...]:
    """The ends of the ranges and points inside them, cheapest first, each point once.

    `min`, `opt`, `max`; one below and one above a multiple of an edge of the kernels' tiles, a
    prime, two seeded random points; of a few dims also the mixed extremes: each dim alone at its
    maximum, and each alone at its minimum. A dim without a maximum is tried up to a size that
    shrinks with the number of such dims.
    """
    used = _carried(inputs, dims)
    tops = _tops(used)
    random = np.random.default_rng(seed)
    interior = [
        Point("opt", {dim.name: _favoured(dim, tops[dim.name]) for dim in used}),
        *(Point(f"edge{step:+}", _beside_edges(used, tops, edges, step)) for step in (-1, 1)),
        Point("prime", {dim.name: _prime(dim, tops[dim.name]) for dim in used}),
        *(
            Point(
                f"random-{index}",
                {dim.name: _between(dim, tops[dim.name], random.uniform(0.1, 0.9)) for dim in used},
            )
            for index in range(1, _RANDOM_POINTS + 1)
        ),
    ]
    return _cheapest_first([*_extremes(used), *interior], inputs)


def points_nearby(inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> tuple[Point, ...]:
    """Points for a slow run: as `points`, but the inner ones lie a few steps off the minimum, in
    one dim or in all of them; five sizes at least.

    The small sizes come first, so that a run that is cut short has met the edges of vectors and
    tiles.
    """
    used = _carried(inputs, dims)
    tops, lows = _tops(used), _lows(used)

    def off(dim: Dim, steps: int) -> int:
        return min(dim.lowest + steps * dim.multiple, tops[dim.name])

    interior = [
        *(
            Point(f"step-{dim.name}", {**lows, dim.name: off(dim, 1)})
            for dim in used
            if len(used) <= _MOST_SINGLE_DIMS
        ),
        *(
            Point(f"steps-{steps}", {dim.name: off(dim, steps) for dim in used})
            for steps in _STEPS_OFF
        ),
    ]
    if any(dim.opt for dim in used):
        interior.append(Point("opt", {dim.name: dim.opt or dim.lowest for dim in used}))
    return _cheapest_first([*_extremes(used, mixed=False), *interior], inputs)


def ladders(
    inputs: Sequence[TensorSpec], dims: Iterable[Dim], count: int
) -> dict[str, tuple[int, ...]]:
    """Up to `count` values of each dim, from its minimum to the most at which it is tried, evenly
    spaced on a logarithmic scale.
    """
    used = _carried(inputs, dims)
    tops = _tops(used)
    return {
        dim.name: tuple(
            sorted({_between(dim, tops[dim.name], step / (count - 1)) for step in range(count)})
        )
        for dim in used
    }


def choose_favoured(inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> dict[str, int]:
    """The value of each dim that is favoured, else one in the middle of its range."""
    used = _carried(inputs, dims)
    tops = _tops(used)
    return {dim.name: _favoured(dim, tops[dim.name]) for dim in used}


def bytes_of(point: Point, inputs: Iterable[TensorSpec]) -> int:
    """How much memory the inputs take at the point, in bytes."""
    return sum(math.prod(shape_at(spec, point)) * itemsize(spec.dtype) for spec in inputs)


def shape_at(spec: TensorSpec, point: Point) -> tuple[int, ...]:
    """The input's shape at the point; an axis whose expression is negative there gives a negative
    size.
    """
    return tuple(axis.evaluate(point.dims) for axis in spec.shape)


def _carried(inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> list[Dim]:
    """The dims that an axis of an input carries, by name."""
    carried = {name for spec in inputs for axis in spec.shape for name in axis.dims}
    return sorted((dim for dim in dims if dim.name in carried), key=lambda dim: dim.name)


def _lows(used: Sequence[Dim]) -> dict[str, int]:
    return {dim.name: dim.lowest for dim in used}


def _tops(used: Sequence[Dim]) -> dict[str, int]:
    """The greatest size at which each dim is tried if all of them have theirs."""
    unbounded = sum(dim.highest is None for dim in used)
    return {dim.name: _top(dim, unbounded) for dim in used}


def _top(dim: Dim, unbounded: int) -> int:
    if dim.highest is not None:
        return dim.highest
    low, high = _UNBOUNDED_RANGE
    room = min(max(int(_UNBOUNDED_VOLUME ** (1 / unbounded)), low), high)
    room = max(room, 2 * dim.lowest, dim.opt or 0)
    return room // dim.multiple * dim.multiple or dim.multiple


def _extremes(used: Sequence[Dim], *, mixed: bool = True) -> list[Point]:
    """All dims at their minimum or maximum, and of a few dims each alone at one of them.

    mixed: with the points that have one dim at its minimum and the others at their maximum, as
    images of the greatest size in a batch of one are.
    """
    lows, points = _lows(used), [Point("min", _lows(used)), Point("max", _tops(used))]
    free = [dim for dim in used if not dim.fixed]
    if 1 < len(free) <= _MOST_SINGLE_DIMS:
        for dim in free:
            points.append(Point(f"max-{dim.name}", {**lows, **_tops([dim])}))
            if mixed and len(free) > 2:
                others = [other for other in used if other is not dim]
                points.append(Point(f"min-{dim.name}", {**lows, **_tops(others)}))
    return points


def _cheapest_first(points: Sequence[Point], inputs: Sequence[TensorSpec]) -> tuple[Point, ...]:
    """Each point once, by the memory of the inputs there; of equal points the first's label."""
    once: dict[tuple[tuple[str, int], ...], Point] = {}
    for point in points:
        once.setdefault(tuple(sorted(point.dims.items())), point)
    ordered = [Point(point.label, dict(dims)) for dims, point in once.items()]
    return tuple(sorted(ordered, key=lambda point: bytes_of(point, inputs)))


def _favoured(dim: Dim, top: int) -> int:
    return dim.opt if dim.opt is not None else _between(dim, top, 0.5)


def _between(dim: Dim, top: int, fraction: float) -> int:
    """An allowed value part of the way up, on a logarithmic scale: small sizes differ more than
    large ones.
    """
    low = dim.lowest
    value = math.exp(math.log(low + 1) + (math.log(top + 1) - math.log(low + 1)) * fraction) - 1
    return _allowed(dim, top, value)


def _allowed(dim: Dim, top: int, value: float) -> int:
    """The allowed value nearest to `value`, between the dim's minimum and `top`."""
    steps = round((value - dim.lowest) / dim.multiple)
    return min(max(dim.lowest + steps * dim.multiple, dim.lowest), top)


def _beside_edges(
    used: Sequence[Dim], tops: Mapping[str, int], edges: Sequence[int], step: int
) -> dict[str, int]:
    """Each dim `step` away from a multiple of an edge, another edge for each dim, about half of its
    range up on a logarithmic scale.
    """
    sizes = {}
    for index, dim in enumerate(used):
        top = tops[dim.name]
        edge = edges[index % len(edges)]
        multiple = max(_between(dim, top, 0.5) // edge, 1) * edge
        sizes[dim.name] = _allowed(dim, top, multiple + step)
    return sizes


def _prime(dim: Dim, top: int) -> int:
    """The greatest allowed prime in the lower three quarters of the range (by its logarithm), else
    their end itself.
    """
    most = _between(dim, top, 0.75)
    values = range(most, max(dim.lowest, 1), -dim.multiple)
    return next((value for value in values if _is_prime(value)), most)


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % factor for factor in range(2, math.isqrt(value) + 1))
