"""Pooling over any number of spatial axes, channels first."""

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.math import division
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn.norm import constant
from compiler.ir.ops.nn.window import Window, read_inside
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def max_pool(b: Builder, x: Value, window: Window, ceil: bool, keep_nan: bool = False) -> Value:
    """The greatest element under each window of x [N, C, *spatial]; padding never wins.

    keep_nan: it is NaN where one of the elements is, not any of the others.
    """
    shape = [*x.shape[:2], *window.pool_extents(b, x.shape[2:], ceil)]
    keep_nan = keep_nan and ew.is_float(x.dtype)
    if not keep_nan and _plain(b, x, window, shape):
        return b.emit(
            relax.op.nn.max_pool2d(b.tensor(x).expr, list(window.kernel), **_geometry(window)),
            shape,
        )
    # TVM has no isnan of bfloat16.
    wide = keep_nan and x.dtype in ("float16", "bfloat16")
    work = ew.cast(b, x, "float32") if wide else x
    lowest = rd.lowest(work.dtype)
    reducer = rd.extreme_reducer("max", work.dtype, keep_nan)

    def compute(data: te.Tensor) -> te.Tensor:
        taps = window.taps()

        def element(n: Any, c: Any, *position: Any) -> Any:
            index = window.under(position, taps)
            return reducer(
                read_inside(lambda *i: data(n, c, *i), index, x.shape[2:], lowest), axis=taps
            )

        return te.compute([ex.prim(extent) for extent in shape], element, name="max_pool")

    return ew.cast(b, b.te(compute, work, name="max_pool"), x.dtype)


def max_pool_indices(
    b: Builder, x: Value, window: Window, ceil: bool, column_major: bool
) -> tuple[Tensor, Tensor]:
    """`max_pool` and, as int64, where in the flattened x each element stands (the first of equals).
    A NaN is greater than any number, and the last of several is taken.

    column_major: count the spatial axes with the first one fastest.
    """
    spatial = x.shape[2:]
    shape = [*x.shape[:2], *window.pool_extents(b, spatial, ceil)]
    lowest = rd.lowest(x.dtype)
    none = tirx.const(-1, "int64")

    def better(p: Any, q: Any) -> Any:
        keep = tirx.Or(
            p[1] > q[1],
            tirx.And(tirx.EQ(p[1], q[1]), tirx.Or(tirx.And(p[0] >= 0, p[0] <= q[0]), q[0] < 0)),
        )
        if ew.is_float(x.dtype):
            known, other = tirx.isnan(_wide(p[1])), tirx.isnan(_wide(q[1]))
            keep = tirx.Or(
                tirx.And(known, tirx.Or(tirx.Not(other), p[0] >= q[0])),
                tirx.And(tirx.Not(other), keep),
            )
        return tirx.Select(keep, p[0], q[0]), tirx.Select(keep, p[1], q[1])

    reducer = te.comm_reducer(better, lambda *_: (none, lowest), name="argmax")

    def compute(data: te.Tensor) -> Sequence[te.Tensor]:
        taps = window.taps()

        def element(n: Any, c: Any, *position: Any) -> Any:
            source = window.under(position, taps)
            flat = _flat([n, c, *source], x.shape[:2], spatial, column_major)
            index = read_inside(lambda *_: flat, source, spatial, none)
            return reducer(
                (index, read_inside(lambda *i: data(n, c, *i), source, spatial, lowest)), axis=taps
            )

        index, value = te.compute([ex.prim(extent) for extent in shape], element, name="max_pool")
        return [value, index]

    value, index = b.te_many(compute, x, name="max_pool")
    return value, index


def _wide(value: Any) -> Any:
    """TVM has no isnan of bfloat16."""
    return value.astype("float32") if value.ty.dtype == "bfloat16" else value


def _flat(
    index: Sequence[Any], outer: Sequence[Extent], spatial: Sequence[Extent], column_major: bool
) -> Any:
    """Position in a flattened [N, C, *spatial]."""
    n, c, *point = index
    extents = list(spatial)
    if column_major:
        point, extents = point[::-1], extents[::-1]
    flat = n * ex.prim(outer[1]) + c
    for i, extent in zip(point, extents, strict=True):
        flat = flat * ex.prim(extent) + i
    return flat


def avg_pool(
    b: Builder,
    x: Value,
    window: Window,
    ceil: bool,
    count_padding: bool,
    divisor: int | None = None,
) -> Value:
    """The mean under each window; `count_padding` divides by the elements of padding too, though
    not by those past it. A `divisor` takes the place of their number.
    """
    shape = [*x.shape[:2], *window.pool_extents(b, x.shape[2:], ceil)]
    if divisor is None and _plain(b, x, window, shape):
        geometry = _geometry(window)
        return b.emit(
            relax.op.nn.avg_pool2d(
                b.tensor(x).expr, list(window.kernel), **geometry, count_include_pad=count_padding
            ),
            shape,
        )
    work = ew.cast(b, x, "float32") if x.dtype in ("float16", "bfloat16") else x
    total = _window_sum(b, work, window, shape, lambda value: value)
    if divisor is not None:
        return ew.cast(b, division.divide(b, total, constant(divisor, work.dtype)), x.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*position: Any) -> Any:
            counts = [
                _count(window, axis, p, x.shape[2 + axis], count_padding)
                for axis, p in enumerate(position[2:])
            ]
            count = tirx.Cast(
                work.dtype, tirx.max(ex.prim(ex.prod(counts)), tirx.const(1, "int64"))
            )
            total = data(*position)
            return tirx.truncdiv(total, count) if "int" in work.dtype else total / count

        return te.compute([ex.prim(extent) for extent in shape], element, name="avg_pool")

    return ew.cast(b, b.te(compute, total, name="avg_pool"), x.dtype)


def _count(window: Window, axis: int, position: Any, extent: Extent, count_padding: bool) -> Any:
    """How many taps along an axis stand on elements, or on elements and padding."""
    zero, dilation = tirx.const(0, "int64"), window.dilations[axis]
    start = position * tirx.const(window.strides[axis], "int64") - ex.prim(window.before[axis])
    stop = ex.prim(ex.add(extent, window.after[axis]) if count_padding else extent)
    first = zero if count_padding else ex.ceildiv(tirx.max(zero - start, zero), dilation)
    last = tirx.min(
        ex.prim(window.kernel[axis]), ex.prim(ex.ceildiv(tirx.max(stop - start, zero), dilation))
    )
    return tirx.max(last - ex.prim(first), zero)


def lp_pool(b: Builder, x: Value, window: Window, ceil: bool, p: int) -> Value:
    """The p-norm under each window."""
    shape = [*x.shape[:2], *window.pool_extents(b, x.shape[2:], ceil)]
    work = ew.cast(b, x, "float32") if x.dtype in ("float16", "bfloat16") else x
    total = _window_sum(b, work, window, shape, lambda value: _power(value, p))
    return ew.cast(b, root(b, total, p), x.dtype)


def root(b: Builder, x: Value, p: int) -> Value:
    """The p-th root of an array without negative elements."""
    if p == 1:
        return x
    if p == 2:
        return ew.unary(b, x, relax.op.sqrt)
    return ew.binary(b, x, constant(1 / p, x.dtype), relax.op.power)


def _power(value: Any, p: int) -> Any:
    size = tirx.abs(value) if p % 2 else value
    result = size
    for _ in range(p - 1):
        result = result * size
    return result


def _window_sum(b: Builder, x: Value, window: Window, shape: Sequence[Extent], term: Any) -> Tensor:
    zero = tirx.const(0, x.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        taps = window.taps()

        def element(n: Any, c: Any, *position: Any) -> Any:
            source = window.under(position, taps)
            return te.sum(
                read_inside(lambda *i: term(data(n, c, *i)), source, x.shape[2:], zero), axis=taps
            )

        return te.compute([ex.prim(extent) for extent in shape], element, name="window_sum")

    return b.te(compute, x, name="window_sum")


def global_pool(b: Builder, x: Value, kind: str) -> Value:
    """Mean or max over all spatial axes, which stay as 1."""
    return rd.reduce(b, x, kind, list(range(2, len(x.shape))), True)


def global_lp_pool(b: Builder, x: Value, p: int) -> Value:
    """The p-norm over all spatial axes, which stay as 1."""
    work = ew.cast(b, x, "float32") if x.dtype in ("float16", "bfloat16") else x
    powers = b.te(
        lambda data: te.compute(data.shape, lambda *i: _power(data(*i), p), name="power"),
        work,
        name="power",
    )
    return ew.cast(
        b, root(b, rd.reduce(b, powers, "sum", list(range(2, len(x.shape))), True), p), x.dtype
    )


def _plain(b: Builder, x: Value, window: Window, shape: Sequence[Extent]) -> bool:
    """True where Relax's own two-dimensional pool computes this."""
    fixed = all(isinstance(ex.plain(extent), int) for extent in (*window.before, *window.after))
    floored = all(
        b.facts.same(a, e) is True
        for a, e in zip(window.out(b, x.shape[2:]), shape[2:], strict=True)
    )
    return (
        x.dtype in ("float32", "float64")
        and window.rank == 2
        and fixed
        and floored
        and window.dilations == (1, 1)
    )


def _geometry(window: Window) -> dict[str, Any]:
    return {
        "strides": list(window.strides),
        "padding": [int(pad) for pad in (*window.before, *window.after)],
    }
