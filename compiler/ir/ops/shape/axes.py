"""Slicing, squeezing and unsqueezing along axes that only run time knows: extents follow by
selection.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from tvm import te, tirx

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent, Scalar


def normalize_axes(b: Builder, axes: Sequence[Extent], rank: int) -> list[Extent]:
    """The axes counted from the first, which must be in range and differ."""
    within: Scalar = True
    for axis in axes:
        within = ex.both(within, ex.both(ex.greater_equal(axis, -rank), ex.less(axis, rank)))
    b.require(within, f"an axis is out of range for rank {rank}")
    positions = _named(
        b, [ex.select(ex.less(axis, 0), ex.add(axis, rank), axis) for axis in axes], "axis"
    )
    differ: Scalar = True
    for one, other in combinations(positions, 2):
        differ = ex.both(differ, ex.not_equal(one, other))
    b.require(differ, "axes repeat")
    return positions


def _named(b: Builder, values: Sequence[Extent], what: str, signed: bool = False) -> list[Extent]:
    """The values computed once at run time, so that what follows is made of plain dims: selections
    of selections grow without bound. signed: whether they may be negative.
    """
    values = [b.facts.simplify(value) for value in values]
    choices = [value for value in values if not isinstance(value, int | tirx.Var)]
    if not choices:
        return values
    read = b.known_positions if signed else b.known_counts
    names = iter(read(b.tensor(Known.of(choices)), what).scalars())
    return [value if isinstance(value, int | tirx.Var) else next(names) for value in values]


def _flags(b: Builder, axes: Sequence[Extent], rank: int) -> list[Extent]:
    """For each axis of a rank 1 where it is among `axes`, else 0."""
    positions = normalize_axes(b, axes, rank)
    return _named(
        b,
        [
            ex.total(ex.select(ex.equal(position, axis), 1, 0) for position in positions)
            for axis in range(rank)
        ],
        "flag",
    )


def _unflagged(b: Builder, flags: Sequence[Extent], what: str) -> list[Extent]:
    """The position of each axis among those without a flag, -1 of those with one."""
    positions = [
        ex.select(ex.equal(flag, 1), -1, ex.sub(axis, ex.total(flags[:axis])))
        for axis, flag in enumerate(flags)
    ]
    return _named(b, positions, what, signed=True)


def _chosen(wanted: Extent, positions: Sequence[Extent], extents: Sequence[Extent]) -> Extent:
    """The extent whose position is the wanted one, 1 where there is none."""
    result: Extent = 1
    for position, extent in zip(positions, extents, strict=True):
        result = ex.select(ex.equal(position, wanted), extent, result)
    return result


def unsqueeze(b: Builder, x: Value, axes: Sequence[Extent]) -> Value:
    """Axes of extent 1 inserted so that they are the result's `axes`."""
    rank = len(x.shape) + len(axes)
    flags = _flags(b, axes, rank)
    # Which of x's axes comes at each position, -1 where a new one does.
    sources = _unflagged(b, flags, "source")
    return layout.reshape(
        b,
        x,
        _named(
            b, [_chosen(source, range(len(x.shape)), x.shape) for source in sources], "unsqueezed"
        ),
    )


def squeeze(b: Builder, x: Value, axes: Sequence[Extent]) -> Value:
    """Axes of extent 1 removed."""
    rank = len(x.shape)
    flags = _flags(b, axes, rank)
    ones: Scalar = True
    for flag, extent in zip(flags, x.shape, strict=True):
        ones = ex.both(ones, ex.either(ex.equal(flag, 0), ex.equal(extent, 1)))
    b.require(ones, "an axis is squeezed but is not 1")
    # Where each of x's axes goes, -1 where it goes away.
    targets = _unflagged(b, flags, "target")
    return layout.reshape(
        b,
        x,
        _named(
            b,
            [_chosen(position, targets, x.shape) for position in range(rank - len(axes))],
            "squeezed",
        ),
    )


def slice_along(
    b: Builder,
    x: Value,
    axes: Sequence[Extent],
    starts: Sequence[Extent],
    stops: Sequence[Extent],
    steps: Sequence[Extent],
) -> Value:
    """x[start:stop:step] along each of the axes; axes, and the signs of steps, may be known only at
    run time.
    """
    rank = len(x.shape)
    if not len(axes) == len(starts) == len(stops) == len(steps):
        raise ImportFailed("starts, ends, axes and steps differ in number", reason="shape")
    positions = normalize_axes(b, axes, rank)
    for step in steps:
        b.require(ex.not_equal(step, 0), "a slice's step is zero")
    firsts, strides, counts = [], [], []
    for axis, extent in enumerate(x.shape):
        bounds: list[Extent] = [0, layout.INT64_MAX, 1]
        for position, *mine in zip(positions, starts, stops, steps, strict=True):
            bounds = [
                ex.select(ex.equal(position, axis), one, other)
                for one, other in zip(mine, bounds, strict=True)
            ]
        start, stop, step = _named(b, bounds, "bound", signed=True)
        first, count = _bounds(extent, start, stop, step)
        firsts.append(first)
        strides.append(step)
        counts.append(count)
    firsts = _named(b, firsts, "first", signed=True)
    shape = _named(b, counts, "slice")

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            return data(
                *(
                    ex.prim(first) + position * ex.prim(stride)
                    for first, position, stride in zip(firsts, i, strides, strict=True)
                )
            )

        return te.compute([ex.prim(e) for e in shape], element, name="slice")

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
    # A stride beyond the axis takes one element; clamped, so that the rounding up does not
    # overflow.
    stride = ex.maximum(
        ex.minimum(ex.select(forward, step, ex.sub(0, step)), ex.maximum(extent, 1)), 1
    )
    return first, ex.maximum(ex.ceildiv(span, stride), 0)
