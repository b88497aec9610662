"""Convolutions over any number of spatial axes, channels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import layout
from compiler.ir.ops.nn_pad import pad_zero
from compiler.ir.ops.nn_window import Window, guarded
from compiler.ir.values import Known, Value

_RELAX: dict[int, tuple[Any, str, str]] = {
    2: (relax.op.nn.conv2d, "NCHW", "OIHW"),
    3: (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
}


def conv(b: Builder, x: Value, weight: Value, bias: Value | None, window: Window, groups: int) -> Value:
    """X [N, C, *spatial] with weight [O, C/groups, *kernel] and bias [O] to [N, O, *out].

    Half precision accumulates in float32. Weights of fixed extents become Relax's own convolution, others a loop nest.
    """
    if x.dtype in ("float16", "bfloat16"):
        wide = [None if value is None else ew.cast(b, value, "float32") for value in (weight, bias)]
        result = conv(b, ew.cast(b, x, "float32"), wide[0], wide[1], window, groups)  # type: ignore[arg-type]
        return ew.cast(b, result, x.dtype)
    channels = b.same(
        x.shape[1],
        b.facts.simplify(ex.mul(weight.shape[1], groups)),
        "the input's channels are not what the weight wants",
    )
    b.require(ex.equal(ex.floormod(weight.shape[0], groups), 0), f"{weight.shape[0]} output channels do not divide into {groups} groups")
    out = [x.shape[0], weight.shape[0], *window.out(b, x.shape[2:])]
    fixed = all(isinstance(ex.plain(extent), int) for extent in (*weight.shape, channels))
    if fixed and window.rank == 1 and ew.is_float(x.dtype):
        return _row(b, x, weight, bias, window, groups)
    if fixed and window.rank in _RELAX and ew.is_float(x.dtype):
        result = _relax(b, x, weight, window, groups, channels, out)
    else:
        result = _nest(b, x, weight, window, groups, out)
    return add_bias(b, result, bias)


def add_bias(b: Builder, x: Value, bias: Value | None) -> Value:
    """X [N, O, ...] plus a bias [O], None for none."""
    return x if bias is None else ew.add(b, x, per_channel(b, bias, x))


def per_channel(b: Builder, vector: Value, x: Value) -> Value:
    """A vector [C] shaped [1, C, 1, ...] to broadcast over x [N, C, ...]."""
    extent = b.same(vector.shape[0], x.shape[1], f"a vector of {vector.shape[0]} for {x.shape[1]} channels")
    return layout.reshape(b, vector, [1, extent, *[1] * (len(x.shape) - 2)])


def _row(b: Builder, x: Value, weight: Value, bias: Value | None, window: Window, groups: int) -> Value:
    """One spatial axis as images of one row, for which there are kernels; Relax's layout pass sees through these two operators."""
    n, c, *extents = x.shape
    image = b.emit(relax.op.expand_dims(b.tensor(x).expr, 2), [n, c, 1, *extents])
    kernel = layout.unsqueeze(b, weight, [2])
    result = b.tensor(conv(b, image, kernel, bias, window.row(), groups))
    return b.emit(relax.op.squeeze(result.expr, 2), [extent for axis, extent in enumerate(result.shape) if axis != 2])


def _relax(b: Builder, x: Value, weight: Value, window: Window, groups: int, channels: Extent, out: Sequence[Extent]) -> Value:
    if not all(isinstance(ex.plain(pad), int) for pad in (*window.before, *window.after)):
        x, window = pad_zero(b, x, [0, 0, *window.before], [0, 0, *window.after]), window.unpadded()
    function, data_layout, kernel_layout = _RELAX[window.rank]
    source = b.adopt(b.tensor(x).expr, [x.shape[0], channels, *x.shape[2:]])
    call = function(
        source.expr,
        b.tensor(weight).expr,
        strides=list(window.strides),
        padding=[int(pad) for pad in (*window.before, *window.after)],
        dilation=list(window.dilations),
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    return b.emit(call, out)


def _nest(b: Builder, x: Value, weight: Value, window: Window, groups: int, out: Sequence[Extent]) -> Value:
    depth = weight.shape[1]
    per_group = ex.maximum(ex.floordiv(weight.shape[0], groups), 1)

    def compute(data: te.Tensor, w: te.Tensor) -> te.Tensor:
        taps = window.taps()
        c = te.reduce_axis((tirx.const(0, "int64"), ex.prim(depth)), name="c")

        def at(n: Any, o: Any, *position: Any) -> Any:
            group = tirx.floordiv(o, ex.prim(per_group)) if groups > 1 else tirx.const(0, "int64")
            place = window.under(position, taps)
            value = guarded(lambda *i: data(n, group * ex.prim(depth) + c, *i), place, x.shape[2:], tirx.const(0, x.dtype))
            return te.sum(value * w(o, c, *taps), axis=[c, *taps])

        return te.compute([ex.prim(extent) for extent in out], at, name="conv")

    return b.te(compute, x, weight, name="conv")


def conv_transpose(b: Builder, x: Value, weight: Value, bias: Value | None, window: Window, groups: int, out: Sequence[Extent]) -> Value:
    """The gradient of `conv` as a layer: x [N, C, *spatial], weight [C, O/groups, *kernel] to [N, O, *out].

    `window` is that of the convolution whose gradient this is; `out` are its input's spatial extents.
    """
    if x.dtype in ("float16", "bfloat16"):
        wide = [None if value is None else ew.cast(b, value, "float32") for value in (weight, bias)]
        result = conv_transpose(b, ew.cast(b, x, "float32"), wide[0], wide[1], window, groups, out)  # type: ignore[arg-type]
        return ew.cast(b, result, x.dtype)
    b.same(x.shape[1], weight.shape[0], f"the input has {x.shape[1]} channels, the weight {weight.shape[0]}")
    b.require(ex.equal(ex.floormod(x.shape[1], groups), 0), f"{x.shape[1]} channels do not divide into {groups} groups")
    shape = [x.shape[0], b.facts.simplify(ex.mul(weight.shape[1], groups)), *out]
    tiled = window.strides == window.kernel and not window.padded and groups == 1 and isinstance(weight, Known)
    if tiled and all(b.facts.same(o, ex.mul(i, k)) is True for o, i, k in zip(out, x.shape[2:], window.kernel, strict=True)):
        result = _tiles(b, x, weight, window, shape)  # type: ignore[arg-type]
    else:
        result = _scatter(b, x, weight, window, groups, shape)
    return add_bias(b, result, bias)


def _tiles(b: Builder, x: Value, weight: Known, window: Window, shape: Sequence[Extent]) -> Value:
    """Windows that do not overlap: a convolution of one tap with a channel for every tap, whose results are laid side by side."""
    rank, columns = window.rank, int(weight.shape[1])
    flat = (
        np.moveaxis(weight.data.reshape(weight.shape[0], columns, -1), 0, -1).transpose(1, 0, 2).reshape(-1, weight.shape[0], *[1] * rank)
    )
    pointwise = conv(b, x, Known(np.ascontiguousarray(flat), weight.dtype), None, Window.of([1] * rank), 1)

    def compute(data: te.Tensor) -> te.Tensor:
        def at(n: Any, o: Any, *position: Any) -> Any:
            tap: Any = tirx.const(0, "int64")
            places = []
            for p, extent in zip(position, window.kernel, strict=True):
                k = tirx.const(int(extent), "int64")
                tap = tap * k + tirx.floormod(p, k)
                places.append(tirx.floordiv(p, k))
            return data(n, tap * tirx.const(columns, "int64") + o, *places)

        return te.compute([ex.prim(extent) for extent in shape], at, name="tiles")

    return b.te(compute, pointwise, name="tiles")


def _scatter(b: Builder, x: Value, weight: Value, window: Window, groups: int, shape: Sequence[Extent]) -> Value:
    """Each result gathers the taps that reach it: with dilation 1, only every stride-th tap of the kernel."""
    depth, per_group = ex.floordiv(x.shape[1], groups), ex.maximum(weight.shape[1], 1)
    sparse = all(d == 1 for d in window.dilations)
    zero = tirx.const(0, "int64")
    spans = [ex.ceildiv(k, s) if sparse else k for k, s in zip(window.kernel, window.strides, strict=True)]

    def compute(data: te.Tensor, w: te.Tensor) -> te.Tensor:
        steps = [te.reduce_axis((zero, ex.prim(span)), name=f"k{axis}") for axis, span in enumerate(spans)]
        c = te.reduce_axis((zero, ex.prim(depth)), name="c")

        def at(n: Any, o: Any, *position: Any) -> Any:
            source, taps, valid = [], [], []
            for axis, p in enumerate(position):
                stride = tirx.const(window.strides[axis], "int64")
                place = p + ex.prim(window.before[axis])
                tap = tirx.floormod(place, stride) + steps[axis] * stride if sparse else steps[axis]
                reach = place - tap * tirx.const(window.dilations[axis], "int64")
                at_source = tirx.floordiv(reach, stride)
                source.append(at_source)
                taps.append(tap)
                valid += [reach >= zero, at_source < ex.prim(x.shape[2 + axis]), tap < ex.prim(window.kernel[axis])]
                valid += [] if sparse else [tirx.EQ(tirx.floormod(reach, stride), zero)]
            group, inner = (tirx.floordiv(o, ex.prim(per_group)), tirx.floormod(o, ex.prim(per_group))) if groups > 1 else (zero, o)
            channel = group * ex.prim(depth) + c
            product = data(n, channel, *source) * w(channel, inner, *taps)
            return te.sum(tirx.if_then_else(tirx.all(*valid), product, tirx.const(0, x.dtype)), axis=[c, *steps])

        return te.compute([ex.prim(extent) for extent in shape], at, name="conv_transpose")

    return b.te(compute, x, weight, name="conv_transpose")


def transposed_extent(b: Builder, window: Window, axis: int, extent: Extent, output_padding: int) -> Extent:
    """Extent of a transposed convolution's result where padding is given."""
    grown = ex.add(ex.mul(ex.sub(extent, 1), window.strides[axis]), ex.add(window.reach(axis), output_padding))
    result = b.facts.simplify(ex.sub(grown, ex.add(window.before[axis], window.after[axis])))
    b.require(ex.greater_equal(result, 0), f"a transposed convolution of an axis of {extent} leaves {result} elements")
    return result
