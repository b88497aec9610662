"""Reductions over axes known at import or only at run time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir.prim import expr as prim

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import division
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.tir.exprs import extreme_or_nan

IDENTITY = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}
"""What a reduction of no elements gives; infinities stand for the dtype's extremes."""
FOLDS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
}


def reduce(
    b: Builder,
    x: Value,
    kind: str,
    axes: Sequence[int],
    keepdims: bool,
    *,
    keep_nan: bool = False,
    mean_of_none: float = np.nan,
) -> Value:
    """sum, prod, max, min or mean over axes; empty axes give x itself; integers accumulate in their
    own dtype.

    An extent of zero gives the reduction's identity. keep_nan: a maximum or minimum is NaN where
    one of the elements is, not any of the others. mean_of_none: a mean of no floats; of no integers
    it is 0.
    """
    positions = sorted({layout.axis_of(axis, len(x.shape)) for axis in axes})
    if not positions:
        return x
    if isinstance(x, Known) and not x.symbolic and x.data.size and x.data.size <= ew.FOLD_LIMIT:
        return Known(
            np.asarray(FOLDS[kind](x.data, axis=tuple(positions), keepdims=keepdims)).astype(
                x.data.dtype
            ),
            x.dtype,
        )
    if isinstance(x, Known) and x.symbolic and x.data.ndim == 1:
        return _fold_symbols(b, x, kind, keepdims)
    extents = [1 if axis in positions else extent for axis, extent in enumerate(x.shape)]
    shape = (
        extents
        if keepdims
        else [extent for axis, extent in enumerate(extents) if axis not in positions]
    )
    reduced = b.facts.simplify(ex.prod(x.shape[axis] for axis in positions))
    if reduced == 0 and isinstance(reduced, int):
        return _of_none(b, kind, x.dtype, shape, mean_of_none)
    result = _emit(b, x, kind, positions, keepdims, shape, keep_nan)
    return ew.cast(b, or_identity(b, result, kind, reduced, mean_of_none), x.dtype)


def _fold_symbols(b: Builder, x: Known, kind: str, keepdims: bool) -> Value:
    step = {"sum": ex.add, "prod": ex.mul, "max": ex.maximum, "min": ex.minimum}.get(kind)
    if step is None:
        return ew.cast(b, _emit(b, x, kind, [0], keepdims, [1] if keepdims else []), x.dtype)
    items = x.scalars()
    total = items[0]
    for item in items[1:]:
        total = step(total, item)
    total = b.facts.simplify(total)
    return Known.of([total] if keepdims else total, x.dtype)


def _emit(
    b: Builder,
    x: Value,
    kind: str,
    axes: Sequence[int],
    keepdims: bool,
    shape: Sequence[Extent],
    keep_nan: bool = False,
) -> Value:
    """The reduction of some elements, of half precision in float32."""
    tensor = b.tensor(x)
    source = (
        b.tensor(ew.cast(b, tensor, "float32")) if x.dtype in ("float16", "bfloat16") else tensor
    )
    if kind in ("max", "min"):
        return _extreme(b, source, kind, axes, shape, keep_nan)
    if kind == "mean" and ew.is_integer(x.dtype):
        return _integer_mean(b, source, axes, keepdims, shape)
    return b.emit(getattr(relax.op, kind)(source.expr, list(axes), keepdims), shape)


def _integer_mean(
    b: Builder, x: Value, axes: Sequence[int], keepdims: bool, shape: Sequence[Extent]
) -> Value:
    total = b.emit(relax.op.sum(b.tensor(x).expr, list(axes), keepdims), shape)
    count = Known.of(b.facts.simplify(ex.prod(x.shape[axis] for axis in axes)), "int64")
    number = ew.cast(b, count, x.dtype) if not count.symbolic else Known(count.data, x.dtype)
    return _mean(b, total, number)


def _mean(b: Builder, total: Value, count: Value) -> Value:
    """The total over the number of elements; what a mean of none is, `or_identity` says."""
    if ew.is_float(total.dtype):
        return ew.divide(b, total, count)
    return division.quotient(b, total, count, division.Direction.TO_ZERO, checked=False)


def _extreme(
    b: Builder,
    x: Value,
    kind: str,
    axes: Sequence[int],
    shape: Sequence[Extent],
    keep_nan: bool,
) -> Value:
    wide = "int8" if x.dtype == "bool" else x.dtype
    keepdims = len(shape) == len(x.shape)
    reducer = extreme_reducer(kind, wide, keep_nan)

    def compute(data: te.Tensor) -> te.Tensor:
        reduced = {axis: te.reduce_axis((0, ex.prim(x.shape[axis])), f"r{axis}") for axis in axes}

        def element(*index: Any) -> Any:
            spatial = (
                iter(index)
                if not keepdims
                else (i for axis, i in enumerate(index) if axis not in reduced)
            )
            position = [
                reduced[axis].var if axis in reduced else next(spatial)
                for axis in range(len(x.shape))
            ]
            return reducer(data(*position).astype(wide), axis=list(reduced.values()))

        return te.compute([ex.prim(e) for e in shape], element, name=kind)

    return ew.cast(b, b.te(compute, x, name=f"reduce_{kind}"), x.dtype)


def reduce_at_run_time(
    b: Builder,
    x: Value,
    kind: str,
    axes: Value,
    keepdims: bool,
    noop: bool,
    mean_of_none: float = np.nan,
) -> Value:
    """`reduce` by an int64 vector of axes that only run time knows; an empty one means all axes, or
    none with `noop`.

    Every axis is walked by a loop of its extent where it is reduced and of 1 where it is not.
    Without keepdims the number of axes must be known, since the rank follows from it.
    """
    rank = len(x.shape)
    flags = [
        ex.not_equal(flag, 0)
        for flag in b.known_counts(_flags(b, axes, rank, noop), "flag").scalars()
    ]
    outer = b.extents(
        [ex.select(flag, 1, extent) for flag, extent in zip(flags, x.shape, strict=True)], "kept"
    )
    loops = b.extents(
        [ex.select(flag, extent, 1) for flag, extent in zip(flags, x.shape, strict=True)], "reduced"
    )
    result = _walk(b, x, kind, outer, loops, mean_of_none)
    if keepdims:
        return result
    count = b.facts.simplify(axes.shape[0])
    if not isinstance(count, int):
        raise ImportFailed(
            "the number of reduced axes is known only at run time, so the rank is not",
            reason="unknown_rank",
            hint="fix the axes with --const",
        )
    return layout.reshape(b, result, _squeezed(x.shape, flags, rank - (count or rank)))


def _flags(b: Builder, axes: Value, rank: int, noop: bool) -> Value:
    """int64[rank], 1 where an axis is reduced."""
    count = ex.prim(axes.shape[0])
    all_axes = tirx.And(tirx.EQ(count, ex.prim(0)), tirx.const(not noop, "bool"))

    def compute(data: te.Tensor) -> te.Tensor:
        def named(place: Any) -> Any:
            r = te.reduce_axis((0, count), "r")
            axis = data(r.var).astype("int64")
            wrapped = tirx.Select(axis < ex.prim(0), axis + ex.prim(rank), axis)
            return te.sum(tirx.Select(tirx.EQ(wrapped, place), ex.prim(1), ex.prim(0)), axis=[r])

        counts = te.compute([ex.prim(rank)], named, name="named")
        return te.compute(
            [ex.prim(rank)],
            lambda place: tirx.Select(
                all_axes,
                ex.prim(1),
                tirx.Cast("int64", tirx.And(counts(place) > ex.prim(0), count > ex.prim(0))),
            ),
            name="flags",
        )

    return b.te(compute, axes, name="reduced_axes")


def _walk(
    b: Builder,
    x: Value,
    kind: str,
    outer: Sequence[Extent],
    loops: Sequence[Extent],
    mean_of_none: float,
) -> Value:
    work = (
        "float32"
        if x.dtype in ("float16", "bfloat16")
        else "int8"
        if x.dtype == "bool"
        else x.dtype
    )
    base = "sum" if kind == "mean" else kind
    reducers = {"sum": te.sum, "prod": _prod}
    reducer = reducers[base] if base in reducers else extreme_reducer(base, work)

    def compute(data: te.Tensor) -> te.Tensor:
        axes = [
            te.reduce_axis((0, ex.prim(extent)), f"r{axis}") for axis, extent in enumerate(loops)
        ]
        return te.compute(
            [ex.prim(e) for e in outer],
            lambda *i: reducer(
                data(*(p + r.var for p, r in zip(i, axes, strict=True))).astype(work), axis=axes
            ),
            name=base,
        )

    total: Value = b.te(compute, x, name=f"reduce_{base}")
    if x.dtype == "bool":
        total = ew.cast(b, total, "bool")
    if kind == "mean":
        count = Known.of(b.facts.simplify(ex.prod(loops)), "int64")
        total = _mean(b, total, ew.cast(b, b.tensor(count), work))
    return ew.cast(b, or_identity(b, total, kind, ex.prod(loops), mean_of_none), x.dtype)


def extreme_reducer(kind: str, dtype: str, keep_nan: bool = False) -> Any:
    """The reducer for TE of a maximum or minimum, NaN where an element is if that is asked for.

    It starts from infinity: TVM's own starts from the extreme finite number, wrong where all are
    infinite.
    """
    return _EXTREMES[kind, keep_nan and ew.is_float(dtype)]


def _make_reducer(kind: str, keep_nan: bool) -> Any:
    node, identity = (prim.Max, lowest) if kind == "max" else (prim.Min, _highest)
    combine = partial(extreme_or_nan, node) if keep_nan else node
    return te.comm_reducer(lambda p, q: combine(p, q), identity, name=kind)


def lowest(dtype: str) -> Any:
    """The maximum of no elements."""
    if ew.is_float(dtype):
        return tirx.const(IDENTITY["max"], dtype)
    return tirx.const(int(np.iinfo(np.dtype(dtype)).min), dtype)


def _highest(dtype: str) -> Any:
    if ew.is_float(dtype):
        return tirx.const(IDENTITY["min"], dtype)
    return tirx.const(int(np.iinfo(np.dtype(dtype)).max), dtype)


_EXTREMES = {
    (kind, keep_nan): _make_reducer(kind, keep_nan)
    for kind in ("max", "min")
    for keep_nan in (False, True)
}
_prod = te.comm_reducer(lambda p, q: p * q, lambda dtype: tirx.const(1, dtype), name="prod")


def _identity(kind: str, dtype: str, mean_of_none: float) -> float | int:
    """Return the result of reducing no elements of the dtype."""
    value = mean_of_none if kind == "mean" else IDENTITY[kind]
    if dtype == "bool":
        return int(value > 0)
    if ew.is_float(dtype) or np.isfinite(value):
        return value
    info = np.iinfo(np.dtype(dtype))
    # A mean of no integers is 0, as ONNX Runtime has it: there is no NaN.
    return 0 if np.isnan(value) else int(info.min if value < 0 else info.max)


def _of_none(
    b: Builder, kind: str, dtype: str, shape: Sequence[Extent], mean_of_none: float
) -> Value:
    """A reduction of no elements in front of every run: TVM divides by their number."""
    fill = tirx.const(_identity(kind, dtype, mean_of_none), dtype)
    extents = [ex.prim(extent) for extent in shape]
    return b.te(lambda: te.compute(extents, lambda *_: fill, name="of_none"), name="of_none")


def or_identity(
    b: Builder, result: Value, kind: str, extent: Extent, mean_of_none: float = np.nan
) -> Value:
    """The reduction's identity where the reduced extent is zero: TVM writes the initial value
    inside the loop, which then never runs.
    """
    if b.facts.decide(ex.greater_equal(extent, 1)) is True:
        return result
    empty = tirx.EQ(ex.prim(b.facts.simplify(extent)), ex.prim(0))
    fill = tirx.const(_identity(kind, result.dtype, mean_of_none), result.dtype)
    return b.te(
        lambda p: te.compute(
            p.shape, lambda *i: tirx.Select(empty, fill, p(*i)), name="or_identity"
        ),
        result,
        name="or_identity",
    )


def _squeezed(shape: Sequence[Extent], flags: Sequence[Any], rank: int) -> list[Extent]:
    """Extents of the axes that stay, in order, by selection on run-time flags."""
    result: list[Extent] = []
    for axis in range(rank):
        extent: Extent = 1
        for source in reversed(range(len(shape))):
            before = ex.total(ex.select(flag, 0, 1) for flag in flags[:source])
            extent = ex.select(
                ex.both(ex.equal(before, axis), ex.negate(flags[source])), shape[source], extent
            )
        result.append(extent)
    return result
