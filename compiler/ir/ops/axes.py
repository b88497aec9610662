"""Slicing, squeezing and unsqueezing along axes that only run time knows: extents follow by selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te

from compiler.errors import ImportFailed
from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent, Scalar
from compiler.ir.ops import layout
from compiler.ir.values import Value


def flags_of(b: Builder, axes: Sequence[Extent], rank: int) -> list[Scalar]:
    """For each axis of a rank whether it is among `axes`, which must be in range and differ."""
    for axis in axes:
        b.require(ex.both(ex.greater_equal(axis, -rank), ex.less(axis, rank)), f"axis {axis} is out of range for rank {rank}")
    flags = []
    for place in range(rank):
        hits = [_names(axis, place, rank) for axis in axes]
        for index, hit in enumerate(hits):
            for other in hits[:index]:
                b.require(ex.negate(ex.both(hit, other)), "axes repeat")
        flag: Scalar = False
        for hit in hits:
            flag = ex.either(flag, hit) if flag is not False else hit
        flags.append(b.facts.simplify(flag))
    return flags


def _names(axis: Extent, place: int, rank: int) -> Scalar:
    return ex.either(ex.equal(axis, place), ex.equal(axis, place - rank))


def _nth(flags: Sequence[Scalar], extents: Sequence[Extent], place: int, start: Extent) -> Extent:
    """The extent of the place-th axis whose flag is not set, `start` where there is none."""
    result = start
    for axis in reversed(range(len(extents))):
        before = ex.total(ex.select(flag, 0, 1) for flag in flags[:axis])
        result = ex.select(ex.both(ex.equal(before, place), ex.negate(flags[axis])), extents[axis], result)
    return result


def unsqueeze(b: Builder, x: Value, axes: Sequence[Extent]) -> Value:
    """Axes of extent 1 inserted so that they are the result's `axes`."""
    rank = len(x.shape) + len(axes)
    flags = flags_of(b, axes, rank)
    shape: list[Extent] = []
    for place in range(rank):
        before = ex.total(ex.select(flag, 0, 1) for flag in flags[:place])
        extent: Extent = 1
        for axis in range(len(x.shape)):
            extent = ex.select(ex.both(ex.equal(before, axis), ex.negate(flags[place])), x.shape[axis], extent)
        shape.append(extent)
    return layout.reshape(b, x, shape)


def squeeze(b: Builder, x: Value, axes: Sequence[Extent]) -> Value:
    """Axes of extent 1 removed."""
    rank = len(x.shape)
    flags = flags_of(b, axes, rank)
    for axis, (flag, extent) in enumerate(zip(flags, x.shape, strict=True)):
        b.require(ex.either(ex.negate(flag), ex.equal(extent, 1)), f"axis {axis} is squeezed but is not 1")
    return layout.reshape(b, x, [_nth(flags, x.shape, place, 1) for place in range(rank - len(axes))])


def slice_along(
    b: Builder, x: Value, axes: Sequence[Extent], starts: Sequence[Extent], stops: Sequence[Extent], steps: Sequence[Extent]
) -> Value:
    """x[start:stop:step] along each of the axes; axes, and the signs of steps, may be known only at run time."""
    rank = len(x.shape)
    if not len(axes) == len(starts) == len(stops) == len(steps):
        raise ImportFailed("starts, ends, axes and steps differ in number", reason="shape")
    flags_of(b, axes, rank)
    for step in steps:
        b.require(ex.not_equal(step, 0), "a slice's step is zero")
    firsts, strides, counts = [], [], []
    for place, extent in enumerate(x.shape):
        start, stop, step = 0, layout.INT64_MAX, 1
        for axis, *bounds in zip(axes, starts, stops, steps, strict=True):
            hit = _names(axis, place, rank)
            start, stop, step = (ex.select(hit, mine, other) for mine, other in zip(bounds, (start, stop, step), strict=True))
        first, count = _bounds(extent, start, stop, step)
        firsts.append(b.facts.simplify(first))
        strides.append(b.facts.simplify(step))
        counts.append(b.facts.simplify(count))
    shape = b.extents(counts, "slice")

    def compute(data: te.Tensor) -> te.Tensor:
        def at(*i: Any) -> Any:
            return data(*(ex.prim(first) + place * ex.prim(stride) for first, place, stride in zip(firsts, i, strides, strict=True)))

        return te.compute([ex.prim(e) for e in shape], at, name="slice")

    return b.te(compute, x, name="slice")


def _bounds(extent: Extent, start: Extent, stop: Extent, step: Extent) -> tuple[Extent, Extent]:
    """First index and count of a slice, as ONNX clamps them, for a step of either sign."""
    forward = ex.greater(step, 0)
    top = ex.sub(extent, 1)

    def clamp(value: Extent, low: Extent, high: Extent) -> Extent:
        wrapped = ex.select(ex.less(value, 0), ex.add(value, extent), value)
        return ex.minimum(ex.maximum(wrapped, low), high)

    first = clamp(start, ex.select(forward, 0, ex.minimum(top, 0)), ex.select(forward, extent, top))
    last = clamp(stop, ex.select(forward, 0, -1), ex.select(forward, extent, top))
    span = ex.select(forward, ex.sub(last, first), ex.sub(first, last))
    # A stride beyond the axis takes one element; clamped, so that the rounding up does not overflow.
    stride = ex.maximum(ex.minimum(ex.select(forward, step, ex.sub(0, step)), ex.maximum(extent, 1)), 1)
    return first, ex.maximum(ex.ceildiv(span, stride), 0)
