"""Resampling along axes: nearest, linear and cubic, by tables of source positions and weights
worked out at run time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.programs import OPAQUE
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.nn.pad import clamp
from compiler.ir.ops.nn.positions import (
    Along,
    Coordinates,
    RunTimeInputs,
    as_float,
    number,
    scale_of,
    source,
)
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_FAR = float(1 << 22)
"""Elements beyond an end, of which float32 still has every one."""
UNROLLED = 4
"""Windows of at most so many taps are written out; longer ones become a reduction."""


class Interpolation(StrEnum):
    """The function between elements."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class NearestMode(StrEnum):
    """The choice of the nearest element; `simple` is floor when growing, ceil when shrinking."""

    ROUND_PREFER_FLOOR = "round_prefer_floor"
    ROUND_PREFER_CEIL = "round_prefer_ceil"
    FLOOR = "floor"
    CEIL = "ceil"
    SIMPLE = "simple"


@dataclass(frozen=True)
class Sampling:
    """How to resample, the same for every axis."""

    interpolation: Interpolation = Interpolation.NEAREST
    coordinates: Coordinates = Coordinates.HALF_PIXEL
    nearest: NearestMode = NearestMode.ROUND_PREFER_FLOOR
    antialias: bool = False
    exclude_outside: bool = False
    cubic_a: float = -0.75
    extrapolation: float = 0.0


def resize(
    b: Builder, x: Value, axes: Sequence[Along], run_time: RunTimeInputs, sampling: Sampling
) -> Value:
    """x resampled along the axes; integers come back truncated, half precision is computed in
    float32.
    """
    axes = [along for along in axes if not _untouched(b, along, sampling)]
    if not axes:
        return x
    for along in axes:
        b.require(
            ex.either(ex.greater(along.have, 0), ex.equal(along.want, 0)),
            "an empty axis has no elements to resize",
        )
    if sampling.interpolation is Interpolation.NEAREST:
        return _nearest(b, x, axes, run_time, sampling)
    result = ew.cast(b, x, "float64" if x.dtype == "float64" else "float32")
    for along in axes:
        result = _interpolated(b, result, along, run_time, sampling)
    return ew.cast(b, result, x.dtype)


def _untouched(b: Builder, along: Along, sampling: Sampling) -> bool:
    cropped = sampling.coordinates is Coordinates.TF_CROP_AND_RESIZE
    return not cropped and along.scale == 1 and b.facts.same(along.have, along.want) is True


def _table(
    b: Builder, along: Along, dtype: str, entry: Callable[..., Any], *values: Tensor, name: str
) -> Tensor:
    """A vector with an entry for each position of the result; left out of fusion so that it is
    worked out once.
    """

    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(along.want)], lambda o: entry(o, *tensors).astype(dtype), name=name
        )

    return b.te(compute, *values, name=name, attrs={"op_pattern": OPAQUE})


def _sources(b: Builder, along: Along, run_time: RunTimeInputs, sampling: Sampling) -> Tensor:
    """`source` of every position.

    A table of its own also because TVM fails on float arithmetic of loop indices that it binds to a
    name.
    """

    def entry(o: Any, *tensors: te.Tensor) -> Any:
        position = source(along, run_time.by_name(tensors), run_time.lanes, sampling.coordinates, o)
        return _finite(position, as_float(along.have)) if tensors else position

    return _table(b, along, "float32", entry, *run_time.tensors, name="sources")


def _finite(position: Any, have: Any) -> Any:
    """A position by run-time scales and regions as one that has an integer: so far outside, NaN
    being before the first element, elements and weights are those of the end.
    """
    low, high = number(-_FAR), have + number(_FAR)
    return tirx.Select(position > low, tirx.Select(position < high, position, high), low)


def _outside(b: Builder, along: Along, sources: Tensor) -> Tensor:
    """True where a position comes from beyond the input."""
    last = as_float(along.have) - number(1)
    return _table(
        b,
        along,
        "bool",
        lambda o, x: tirx.Or(x(o) < number(0), x(o) > last),
        sources,
        name="outside",
    )


def _nearest(
    b: Builder, x: Value, axes: Sequence[Along], run_time: RunTimeInputs, sampling: Sampling
) -> Value:
    factors = {along.axis: _factor(b, along, sampling) for along in axes}
    looked_up = [along for along in axes if factors[along.axis] is None]
    sources = [_sources(b, along, run_time, sampling) for along in looked_up]
    tables = [
        _nearest_indices(b, along, run_time, sampling, table)
        for along, table in zip(looked_up, sources, strict=True)
    ]
    cropped = looked_up if sampling.coordinates is Coordinates.TF_CROP_AND_RESIZE else []
    masks = [_outside(b, along, table) for along, table in zip(cropped, sources, strict=False)]
    shape = _resized(x, axes)

    def compute(data: te.Tensor, *extra: te.Tensor) -> te.Tensor:
        indices = dict(zip((along.axis for along in looked_up), extra, strict=False))

        def element(*position: Any) -> Any:
            index = list(position)
            for axis, factor in factors.items():
                index[axis] = (
                    indices[axis](index[axis])
                    if factor is None
                    else tirx.floordiv(index[axis], tirx.const(factor, "int64"))
                )
            value = data(*index)
            for along, mask in zip(cropped, extra[len(looked_up) :], strict=False):
                value = tirx.Select(
                    mask(position[along.axis]), tirx.const(sampling.extrapolation, x.dtype), value
                )
            return value

        return te.compute([ex.prim(extent) for extent in shape], element, name="resize")

    return b.te(compute, x, *tables, *masks, name="resize")


def _resized(x: Value, axes: Sequence[Along]) -> list[Extent]:
    wanted = {along.axis: along.want for along in axes}
    return [wanted.get(axis, extent) for axis, extent in enumerate(x.shape)]


def _factor(b: Builder, along: Along, sampling: Sampling) -> int | None:
    """The whole number of times that each element is repeated, None where it is not a plain
    repetition.
    """
    plain = sampling.coordinates is Coordinates.ASYMMETRIC and sampling.nearest in (
        NearestMode.FLOOR,
        NearestMode.SIMPLE,
    )
    rounds = sampling.nearest in (NearestMode.ROUND_PREFER_FLOOR, NearestMode.ROUND_PREFER_CEIL)
    if not plain and not (
        sampling.coordinates in (Coordinates.HALF_PIXEL, Coordinates.PYTORCH_HALF_PIXEL) and rounds
    ):
        return None
    for factor in (2, 3, 4, 8):
        if (
            along.scale in (None, factor)
            and b.facts.same(along.want, ex.mul(along.have, factor)) is True
        ):
            return factor
    return None


def _nearest_indices(
    b: Builder, along: Along, run_time: RunTimeInputs, sampling: Sampling, sources: Tensor
) -> Tensor:
    """The element nearest to each source."""

    def entry(o: Any, table: te.Tensor, *tensors: te.Tensor) -> Any:
        x = table(o)
        match sampling.nearest:
            case NearestMode.FLOOR:
                near = tirx.floor(x)
            case NearestMode.CEIL:
                near = tirx.ceil(x)
            case NearestMode.ROUND_PREFER_FLOOR:
                near = tirx.ceil(x - number(0.5))
            case NearestMode.ROUND_PREFER_CEIL:
                near = tirx.floor(x + number(0.5))
            case NearestMode.SIMPLE:
                near = tirx.Select(
                    scale_of(along, run_time.by_name(tensors)) < number(1),
                    tirx.ceil(x),
                    tirx.floor(x),
                )
        return clamp(near.astype("int64"), along.have)

    return _table(b, along, "int64", entry, sources, *run_time.tensors, name="nearest")


def _interpolated(
    b: Builder, x: Value, along: Along, run_time: RunTimeInputs, sampling: Sampling
) -> Value:
    """One axis resampled as weighted sums of its neighbours."""
    reach = 1 if sampling.interpolation is Interpolation.LINEAR else 2
    half: Extent = reach
    if sampling.antialias:
        # A window reaches `reach` elements of the result, by the scale and not by the extents.
        twice = ex.mul(along.want, 2)
        length = ex.maximum(ex.sub(twice, 1) if along.half_up else twice, 1)
        spread = ex.ceildiv(ex.mul(along.have, 2 * reach), length)
        half = b.symbol(b.facts.simplify(ex.maximum(spread, reach)), "taps")
    taps = b.facts.simplify(ex.mul(half, 2))
    sources = _sources(b, along, run_time, sampling)
    weights = _weights(b, along, run_time, sampling, half, taps, sources)
    masks = (
        [_outside(b, along, sources)]
        if sampling.coordinates is Coordinates.TF_CROP_AND_RESIZE
        else []
    )
    shape, axis = _resized(x, [along]), along.axis

    def compute(
        data: te.Tensor, positions: te.Tensor, weight: te.Tensor, *mask: te.Tensor
    ) -> te.Tensor:
        def term(position: Sequence[Any], k: Any) -> Any:
            index = clamp(_tap(positions(position[axis]), half, k), along.have)
            return data(*position[:axis], index, *position[axis + 1 :]) * weight(
                position[axis], k
            ).astype(x.dtype)

        def element(*position: Any) -> Any:
            value = _sum(lambda k: term(position, k), taps)
            for outside in mask:
                value = tirx.Select(
                    outside(position[axis]), tirx.const(sampling.extrapolation, x.dtype), value
                )
            return value

        return te.compute([ex.prim(extent) for extent in shape], element, name="resize")

    return b.te(compute, x, sources, weights, *masks, name="resize")


def _tap(position: Any, half: Extent, k: Any) -> Any:
    """Index, before it is clamped, of the k-th of 2 * half elements around a position."""
    return tirx.floor(position).astype("int64") - ex.prim(half) + tirx.const(1, "int64") + k


def _sum(term: Callable[[Any], Any], taps: Extent) -> Any:
    if isinstance(taps, int) and taps <= UNROLLED:
        total = term(tirx.const(0, "int64"))
        for k in range(1, taps):
            total = total + term(tirx.const(k, "int64"))
        return total
    axis = te.reduce_axis((tirx.const(0, "int64"), ex.prim(taps)), name="k")
    return te.sum(term(axis), axis=axis)


def _weights(
    b: Builder,
    along: Along,
    run_time: RunTimeInputs,
    sampling: Sampling,
    half: Extent,
    taps: Extent,
    sources: Tensor,
) -> Tensor:
    """[want, taps] weights of the elements around each position."""

    def compute(positions: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def weight(o: Any, k: Any) -> Any:
            index = _tap(positions(o), half, k)
            distance = index.astype("float32") - positions(o)
            if sampling.antialias:
                distance = distance * tirx.min(
                    scale_of(along, run_time.by_name(tensors)), number(1)
                )
            value = _kernel(tirx.abs(distance), sampling)
            if sampling.exclude_outside:
                value = tirx.Select(
                    tirx.all(index >= 0, index < ex.prim(along.have)), value, number(0)
                )
            return value

        raw = te.compute([ex.prim(along.want), ex.prim(taps)], weight, name="weights")
        if not sampling.antialias and not sampling.exclude_outside:
            return raw
        k = te.reduce_axis((tirx.const(0, "int64"), ex.prim(taps)), name="k")
        total = te.compute([ex.prim(along.want)], lambda o: te.sum(raw(o, k), axis=k), name="total")
        safe = te.compute(
            total.shape,
            lambda o: tirx.Select(tirx.EQ(total(o), number(0)), number(1), total(o)),
            name="divisor",
        )
        return te.compute(raw.shape, lambda o, i: raw(o, i) / safe(o), name="normalised")

    return b.te(compute, sources, *run_time.tensors, name="weights", attrs={"op_pattern": OPAQUE})


def _kernel(d: Any, sampling: Sampling) -> Any:
    """Weight of an element at distance d >= 0."""
    zero, one, two = number(0), number(1), number(2)
    if sampling.interpolation is Interpolation.LINEAR:
        return tirx.max(one - d, zero)
    a = sampling.cubic_a
    near = (number(a + 2) * d - number(a + 3)) * d * d + one
    far = ((number(a) * d - number(5 * a)) * d + number(8 * a)) * d - number(4 * a)
    return tirx.Select(d <= one, near, tirx.Select(d < two, far, zero))
