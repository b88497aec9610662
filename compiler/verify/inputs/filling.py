"""Makes points and inputs agree on how far a model's caches are filled."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.ir.caches import CacheUse
from compiler.verify.inputs.points import Point, shape_at
from relaxd.contract.bundle.state import Part
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec

Arrays = dict[str, np.ndarray[Any, Any]]


def agreeing(point: Point, dims: Iterable[Dim], uses: Iterable[CacheUse]) -> Point:
    """The point with dims changed such that each cache takes the past and the new tokens: its total
    is both together, or within the past's room if the total's range admits no more.
    """
    table, sizes = {dim.name: dim for dim in dims}, dict(point.dims)
    for use in uses:
        _keep_to_one_of_two(use, table, sizes)
        room = use.room.evaluate(sizes)
        if use.total is not None and use.total.symbol:
            dim, both = table[use.total.symbol], room + use.rows.evaluate(sizes)
            sizes[dim.name] = both if dim.admits(both) else _within(dim, min(room, both))
        if use.rows.symbol:
            dim = table[use.rows.symbol]
            sizes[dim.name] = min(sizes[dim.name], _within(dim, _total(use, sizes)))
    return Point(point.label, sizes)


def _keep_to_one_of_two(use: CacheUse, table: Mapping[str, Dim], sizes: dict[str, int]) -> None:
    """Several entries get one new token, or several tokens one entry: ONNX Runtime takes several
    for several only without a past.
    """
    entries, rows = (axis.evaluate(sizes) for axis in (use.entries, use.rows))
    if entries <= 1 or rows <= 1 or use.room.evaluate(sizes) == 0:
        return
    order = (use.entries, use.rows) if (entries + rows) % 2 else (use.rows, use.entries)
    for axis in order:
        if axis.symbol and table[axis.symbol].admits(1):
            sizes[axis.symbol] = 1
            return


def objection(point: Point, uses: Iterable[CacheUse], capacity: Dim | None = None) -> str | None:
    """Why no call has the point's sizes, None where one may. capacity: of caches that the caller
    owns.
    """
    for use in uses:
        rows, total = use.rows.evaluate(point.dims), _total(use, point.dims)
        if rows > total:
            return f"{rows} new tokens do not fit into {total} in all"
        most = capacity.highest if capacity else None
        if most is not None and total > most:
            return f"{total} tokens are too many: there is room for {most}"
    return None


def fill_lengths(
    point: Point, inputs: Sequence[TensorSpec], uses: Iterable[CacheUse], seed: int
) -> Arrays:
    """The inputs that state how many tokens caches hold. A single new token meets caches of
    different lengths; more of them meet full ones in all entries, as no two engines agree on padded
    prompts.
    """
    lengths: Arrays = {}
    specs = {spec.name: spec for spec in inputs}
    for use in uses:
        random = np.random.default_rng([seed, *point.dims.values()])
        rows, total = use.rows.evaluate(point.dims), _total(use, point.dims)
        entries = use.entries.evaluate(point.dims)
        ends = np.full(entries, total, np.int64)
        if rows == 1 and total > 0 and entries > 1:
            ends[1:] = random.integers(1, total, size=entries - 1, endpoint=True)
        for name, part in use.parts.items():
            shape = shape_at(specs[name], point)
            values = _values(part, ends, rows, shape)
            if values is not None:
                lengths[name] = values.astype(specs[name].dtype)
    return lengths


def _values(
    part: Part, ends: np.ndarray[Any, Any], rows: int, shape: tuple[int, ...]
) -> np.ndarray[Any, Any] | None:
    """The input of that shape; None where the shape is not one that the part has."""
    if part is Part.TOTAL:
        return np.full(shape, ends.max(initial=0))
    if part in (Part.LENGTH, Part.LAST):
        last = ends - (1 if part is Part.LAST else 0)
        return last.reshape(shape) if last.size == int(np.prod(shape)) else None
    if len(shape) != 2 or shape[0] != len(ends):
        return None
    if part is Part.MASK:
        return np.arange(shape[1]) < ends[:, None]
    return (ends - rows)[:, None] + np.arange(shape[1])


def _total(use: CacheUse, sizes: Mapping[str, int]) -> int:
    axis: Axis | None = use.total
    if axis is not None:
        return axis.evaluate(sizes)
    return use.room.evaluate(sizes) + use.rows.evaluate(sizes)


def _within(dim: Dim, value: int) -> int:
    """The greatest allowed value up to `value`, else the dim's least."""
    most = value if dim.highest is None else min(value, dim.highest)
    return max(dim.lowest, dim.lowest + (most - dim.lowest) // dim.multiple * dim.multiple)
