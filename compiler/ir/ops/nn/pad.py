"""Padding: constant, reflected, repeated at the edge, or wrapped around; negative padding crops."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.nn.window import read_inside
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


class PadMode(StrEnum):
    """The content of the padding."""

    CONSTANT = "constant"
    REFLECT = "reflect"
    EDGE = "edge"
    WRAP = "wrap"


def pad_zero(b: Builder, x: Value, before: Sequence[Extent], after: Sequence[Extent]) -> Value:
    """X with zeros before and after each axis."""
    return pad(b, x, before, after, PadMode.CONSTANT)


def pad(
    b: Builder,
    x: Value,
    before: Sequence[Extent],
    after: Sequence[Extent],
    mode: PadMode,
    fill: Value | None = None,
) -> Value:
    """X with `before[i]` elements before axis i and `after[i]` behind it; `fill` is a scalar for
    the constant mode, None for zero.
    """
    before, after = list(before), list(after)
    shape = b.extents(
        [_extent(b, *item) for item in zip(x.shape, before, after, strict=True)], "padded"
    )
    touched = [
        axis
        for axis in range(len(shape))
        if b.facts.same(before[axis], 0) is not True or b.facts.same(after[axis], 0) is not True
    ]
    if not touched:
        return x
    if mode is PadMode.CONSTANT:
        return _constant(b, x, before, shape, touched, fill)
    starts = [ex.maximum(amount, 0) for amount in before]
    first = [_cropped(b, amount) for amount in before]
    extents = [
        b.facts.simplify(ex.sub(extent, ex.add(start, _cropped(b, amount))))
        for extent, start, amount in zip(x.shape, first, after, strict=True)
    ]
    if mode is PadMode.EDGE:
        # A clamped position needs no crop, and has an edge where everything is cropped.
        starts, first, extents = before, [0] * len(shape), list(x.shape)
    for axis in touched:
        _demand_source(b, extents[axis], shape[axis])
    source_index = _SOURCES[mode]

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*position: Any) -> Any:
            return data(
                *(
                    source_index(i - ex.prim(starts[axis]), extents[axis]) + ex.prim(first[axis])
                    if axis in touched
                    else i
                    for axis, i in enumerate(position)
                )
            )

        return te.compute([ex.prim(extent) for extent in shape], element, name="pad")

    return b.te(compute, x, name="pad")


def _cropped(b: Builder, amount: Extent) -> Extent:
    """How many elements a padding takes away."""
    if b.facts.decide(ex.greater_equal(amount, 0)) is True:
        return 0
    return b.facts.simplify(ex.maximum(ex.sub(0, amount), 0))


def _demand_source(b: Builder, have: Extent, want: Extent) -> None:
    b.require(
        ex.either(ex.greater(have, 0), ex.equal(want, 0)),
        "an empty axis has no elements to pad with",
    )


def _extent(b: Builder, extent: Extent, before: Extent, after: Extent) -> Extent:
    total = b.facts.simplify(ex.add(extent, ex.add(before, after)))
    b.require(
        ex.greater_equal(total, 0), f"padding crops more than the {extent} elements there are"
    )
    return total


def _constant(
    b: Builder,
    x: Value,
    before: Sequence[Extent],
    shape: Sequence[Extent],
    touched: Sequence[int],
    fill: Value | None,
) -> Value:
    scalar = fill.scalars()[0] if isinstance(fill, Known) else None
    extents = [x.shape[axis] for axis in touched]

    def compute(data: te.Tensor, *extra: te.Tensor) -> te.Tensor:
        def element(*position: Any) -> Any:
            value = extra[0]() if extra else ex.prim(scalar if scalar is not None else 0, x.dtype)
            moved = [i - ex.prim(before[axis]) for axis, i in enumerate(position)]
            return read_inside(
                lambda *_: data(*moved), [moved[axis] for axis in touched], extents, value
            )

        return te.compute([ex.prim(extent) for extent in shape], element, name="pad")

    run_time_fill = [] if fill is None or scalar is not None else [fill]
    return b.te(compute, x, *run_time_fill, name="pad")


def reflect(i: Any, extent: Extent) -> Any:
    """Index folded back at both ends as often as it takes, the end elements not repeated."""
    last = ex.prim(extent) - tirx.const(1, "int64")
    period = tirx.max(last * tirx.const(2, "int64"), tirx.const(1, "int64"))
    folded = tirx.floormod(i, period)
    return tirx.min(
        folded, tirx.max(last * tirx.const(2, "int64"), tirx.const(0, "int64")) - folded
    )


def clamp(i: Any, extent: Extent) -> Any:
    """Index limited to the first and last element."""
    return tirx.max(tirx.min(i, ex.prim(extent) - tirx.const(1, "int64")), tirx.const(0, "int64"))


def wrap(i: Any, extent: Extent) -> Any:
    """Index taken around."""
    return tirx.floormod(i, tirx.max(ex.prim(extent), tirx.const(1, "int64")))


_SOURCES: dict[PadMode, Callable[[Any, Extent], Any]] = {
    PadMode.REFLECT: reflect,
    PadMode.EDGE: clamp,
    PadMode.WRAP: wrap,
}
