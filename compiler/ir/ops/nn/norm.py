"""Normalisations and softmax, with statistics in float32 or wider."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn.conv import per_channel
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


def constant(value: float, dtype: str) -> Known:
    """A known scalar."""
    return Known(np.asarray(value, np.dtype(dtype)), dtype)


def wide(dtype: str) -> str:
    """The dtype in which statistics of `dtype` are computed."""
    return "float64" if dtype == "float64" else "float32"


def sqrt(b: Builder, x: Value) -> Value:
    """Square root."""
    return ew.unary(b, x, relax.op.sqrt, numpy=np.sqrt)


def inverse_root(b: Builder, x: Value, epsilon: float) -> Value:
    """1 / sqrt(x + epsilon)."""
    return ew.divide(b, constant(1, x.dtype), sqrt(b, ew.add(b, x, constant(epsilon, x.dtype))))


def batch_norm(
    b: Builder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    """X [N, C, ...] as x * s + t with s, t [C]; both are folded at import where the parameters are
    known.
    """
    dtype = wide(scale.dtype)
    scale, bias, mean, variance = (
        ew.cast(b, value, dtype) for value in (scale, bias, mean, variance)
    )
    factor = ew.multiply(b, scale, inverse_root(b, variance, epsilon))
    offset = ew.subtract(b, bias, ew.multiply(b, mean, factor))
    work = ew.cast(b, x, dtype)
    return ew.cast(
        b,
        ew.add(b, ew.multiply(b, work, per_channel(b, factor, x)), per_channel(b, offset, x)),
        x.dtype,
    )


def moments(b: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """X less its mean over the axes (kept as 1), and the mean itself; in the wide dtype."""
    work = ew.cast(b, x, wide(x.dtype))
    mean = rd.reduce(b, work, "mean", axes, True)
    return ew.subtract(b, work, mean), mean


def variance_of(b: Builder, centred: Value, axes: Sequence[int]) -> Value:
    """Mean of squares over the axes (kept as 1)."""
    return rd.reduce(b, ew.multiply(b, centred, centred), "mean", axes, True)


def layer_norm(
    b: Builder, x: Value, scale: Value | None, bias: Value | None, axis: int, epsilon: float
) -> Value:
    """X normalised over the axes from `axis` on, times scale plus bias, which broadcast to x."""
    axes = list(range(axis, len(x.shape)))
    affine = [value for value in (scale, bias) if value is not None]
    uniform = x.dtype == "float32" and all(
        value.dtype == x.dtype and _spans(b, value, x, axes) for value in affine
    )
    # TVM divides by the number of elements, which then must not be the constant 0.
    empty = b.facts.same(ex.prod(x.shape[axis:]), 0) is True
    if scale is not None and uniform and not empty:
        shift = bias if bias is not None else zeros_like(b, scale)
        operands = [b.adopt(b.tensor(value).expr, x.shape[axis:]).expr for value in (scale, shift)]
        return b.emit(
            relax.op.nn.layer_norm(b.tensor(x).expr, *operands, axes=axes, epsilon=epsilon), x.shape
        )
    return layer_norm_moments(b, x, scale, bias, axes, epsilon)[0]


def _spans(b: Builder, parameter: Value, x: Value, axes: Sequence[int]) -> bool:
    wanted = [x.shape[axis] for axis in axes]
    return len(parameter.shape) == len(wanted) and all(
        b.facts.same(a, e) is True for a, e in zip(parameter.shape, wanted, strict=True)
    )


def zeros_like(b: Builder, x: Value) -> Value:
    """Zeros of a value's shape and dtype."""
    if isinstance(x, Known):
        return Known(np.zeros(x.shape, np.dtype(x.dtype)), x.dtype)
    return b.te(
        lambda p: te.compute(p.shape, lambda *_: tirx.const(0, x.dtype), name="zeros"),
        x,
        name="zeros",
    )


def layer_norm_moments(
    b: Builder,
    x: Value,
    scale: Value | None,
    bias: Value | None,
    axes: Sequence[int],
    epsilon: float,
) -> tuple[Value, Value, Value]:
    """`layer_norm` with its mean and inverse standard deviation, both in the wide dtype with the
    axes kept as 1.
    """
    centred, mean = moments(b, x, axes)
    inverse = inverse_root(b, variance_of(b, centred, axes), epsilon)
    return (
        affine(b, ew.cast(b, ew.multiply(b, centred, inverse), x.dtype), scale, bias),
        mean,
        inverse,
    )


def affine(b: Builder, x: Value, scale: Value | None, bias: Value | None) -> Value:
    """X * scale + bias, either None."""
    scaled = x if scale is None else ew.multiply(b, x, scale)
    return scaled if bias is None else ew.add(b, scaled, bias)


def rms_norm(b: Builder, x: Value, scale: Value, axis: int, epsilon: float, compute: str) -> Value:
    """X over the root of the mean of its squares on the axes from `axis` on, times scale; the
    statistics in `compute`.
    """
    axes = list(range(axis, len(x.shape)))
    work = ew.cast(b, x, compute)
    inverse = inverse_root(b, variance_of(b, work, axes), epsilon)
    normal = ew.cast(b, ew.multiply(b, work, inverse), x.dtype)
    return ew.multiply(b, ew.cast(b, normal, scale.dtype), scale)


def instance_norm(b: Builder, x: Value, scale: Value, bias: Value, epsilon: float) -> Value:
    """X [N, C, *spatial] normalised over its spatial axes, with scale and bias [C]."""
    axes = list(range(2, len(x.shape)))
    return layer_norm_moments(
        b, x, per_channel(b, scale, x), per_channel(b, bias, x), axes, epsilon
    )[0]


def group_norm(
    b: Builder, x: Value, scale: Value, bias: Value, groups: int, epsilon: float, per_group: bool
) -> Value:
    """X [N, C, *spatial] normalised over each group of channels; scale and bias are [C], or
    [groups] where `per_group`.
    """
    if not per_group:
        return group_norm_moments(b, x, scale, bias, groups, epsilon)[0]
    grouped, axes = _by_group(b, x, groups)
    columns = [layout.reshape(b, value, [1, groups, *[1] * len(axes)]) for value in (scale, bias)]
    return layout.reshape(
        b, layer_norm_moments(b, grouped, columns[0], columns[1], axes, epsilon)[0], x.shape
    )


def group_norm_moments(
    b: Builder, x: Value, scale: Value | None, bias: Value | None, groups: int, epsilon: float
) -> tuple[Value, Value, Value]:
    """X [N, C, *spatial] normalised over each group of channels, with the mean and the inverse
    standard deviation of each, [N, groups]; scale and bias are [C].
    """
    grouped, axes = _by_group(b, x, groups)
    normal, *statistics = layer_norm_moments(b, grouped, None, None, axes, epsilon)
    columns = [None if value is None else per_channel(b, value, x) for value in (scale, bias)]
    mean, inverse = (layout.reshape(b, value, [x.shape[0], groups]) for value in statistics)
    return affine(b, layout.reshape(b, normal, x.shape), *columns), mean, inverse


def _by_group(b: Builder, x: Value, groups: int) -> tuple[Value, list[int]]:
    """X as [N, groups, C // groups, *spatial], and the axes behind the groups."""
    b.require(
        ex.equal(ex.floormod(x.shape[1], groups), 0),
        f"{x.shape[1]} channels do not divide into {groups} groups",
    )
    depth = b.facts.simplify(ex.floordiv(x.shape[1], groups))
    grouped = layout.reshape(b, x, [x.shape[0], groups, depth, *x.shape[2:]])
    return grouped, list(range(2, len(grouped.shape)))


def softmax(b: Builder, x: Value, axis: int, log: bool = False) -> Value:
    """exp(x) over its sum along an axis, or the logarithm of that."""
    axis = layout.axis_of(axis, len(x.shape))
    work = ew.cast(b, x, wide(x.dtype))
    last = len(x.shape) - 1
    if log and axis != last:
        order = [i for i in range(last + 1) if i != axis] + [axis]
        moved = softmax(b, layout.transpose(b, work, order), last, log)
        return ew.cast(
            b, layout.transpose(b, moved, [order.index(i) for i in range(last + 1)]), x.dtype
        )
    function = relax.op.nn.log_softmax if log else relax.op.nn.softmax
    return ew.cast(b, b.emit(function(b.tensor(work).expr, axis), x.shape), x.dtype)


def hardmax(b: Builder, x: Value, axis: int) -> Value:
    """1 at the first greatest element along an axis, 0 elsewhere."""
    axis = layout.axis_of(axis, len(x.shape))
    outer = [extent for i, extent in enumerate(x.shape) if i != axis]
    first = te.comm_reducer(
        _first_greatest,
        lambda *dtypes: (tirx.const(-1, "int64"), tirx.min_value(dtypes[1])),
        name="argmax",
    )

    def compute(data: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((tirx.const(0, "int64"), ex.prim(x.shape[axis])), name="k")
        winner, _ = te.compute(
            [ex.prim(e) for e in outer],
            lambda *i: first((k, data(*i[:axis], k, *i[axis:])), axis=k),
            name="argmax",
        )

        def element(*i: Any) -> Any:
            won = tirx.EQ(winner(*i[:axis], *i[axis + 1 :]), i[axis])
            return tirx.Select(won, tirx.const(1, x.dtype), tirx.const(0, x.dtype))

        return te.compute(data.shape, element, name="hardmax")

    return b.te(compute, x, name="hardmax")


def _first_greatest(p: Any, q: Any) -> Any:
    keep = tirx.Or(
        p[1] > q[1],
        tirx.And(tirx.EQ(p[1], q[1]), tirx.Or(tirx.And(p[0] >= 0, p[0] < q[0]), q[0] < 0)),
    )
    return tirx.Select(keep, p[0], q[0]), tirx.Select(keep, p[1], q[1])


def local_response_norm(
    b: Builder, x: Value, size: int, alpha: float, beta: float, bias: float
) -> Value:
    """X / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""
    work = ew.cast(b, x, wide(x.dtype))
    before, zero = (size - 1) // 2, tirx.const(0, work.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((tirx.const(0, "int64"), tirx.const(size, "int64")), name="k")

        def square(n: Any, c: Any, *i: Any) -> Any:
            near = c + k - tirx.const(before, "int64")
            inside = tirx.all(near >= 0, near < ex.prim(x.shape[1]))
            return te.sum(
                tirx.if_then_else(inside, data(n, near, *i) * data(n, near, *i), zero), axis=k
            )

        return te.compute(data.shape, square, name="squares")

    squares = b.te(compute, work, name="squares")
    scaled = ew.add(
        b, ew.multiply(b, squares, constant(alpha / size, work.dtype)), constant(bias, work.dtype)
    )
    return ew.cast(
        b,
        ew.divide(b, work, ew.binary(b, scaled, constant(beta, work.dtype), relax.op.power)),
        x.dtype,
    )


def lp_normalize(b: Builder, x: Value, axis: int, p: int) -> Value:
    """X over its p-norm along an axis (p 1 or 2), zero where the norm is."""
    work = ew.cast(b, x, wide(x.dtype))
    if p == 1:
        norm = rd.reduce(b, ew.unary(b, work, relax.op.abs), "sum", [axis], True)
    else:
        norm = sqrt(b, rd.reduce(b, ew.multiply(b, work, work), "sum", [axis], True))
    zero = constant(0, work.dtype)
    safe = ew.where(b, ew.compare(b, norm, zero, "equal"), constant(1, work.dtype), norm)
    return ew.cast(b, ew.divide(b, work, safe), x.dtype)
