"""Pooling."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operators.convolution import per_axis
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math.reduce import extreme_reducer, lowest
from compiler.ir.ops.nn import pool as nn_pool
from compiler.ir.ops.nn.window import Window
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _rank(node: Node) -> int:
    return int(node.kind.partition("pool")[2][0])


def _batched(b: Builder, x: Value, rank: int) -> tuple[Value, bool]:
    """[N, C, *spatial], and whether N had to be added."""
    single = len(x.shape) == rank + 1
    return (layout.unsqueeze(b, x, [0]) if single else x), single


def _window(node: Node, rank: int) -> Window:
    kernel = per_axis(node, "kernel_size", rank)
    strides = (
        per_axis(node, "stride", rank) if node.has("stride") and node.ints("stride") else kernel
    )
    pads = per_axis(node, "padding", rank, 0)
    return Window.of(kernel, strides, per_axis(node, "dilation", rank), [*pads, *pads])


def _operands(b: Builder, node: Node) -> tuple[Value, bool, Window]:
    """[N, C, *spatial], whether N had to be added, and the window, which torch refuses where it is
    longer than a padded axis, by a stride or more where partial windows count.
    """
    rank = _rank(node)
    x, single = _batched(b, node.value("self"), rank)
    window = _window(node, rank)
    partial = node.bool("ceil_mode", False)
    for axis, extent in enumerate(x.shape[2:]):
        room = ex.sub(
            ex.add(ex.add(extent, window.before[axis]), window.after[axis]), window.reach(axis)
        )
        b.require(
            ex.greater(room, -window.strides[axis] if partial else -1),
            f"a window of {window.reach(axis)} elements does not fit an axis of {extent}",
        )
    return x, single, window


@op("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(b: Builder, node: Node) -> Value:
    """The greatest element under each window, NaN where there is one."""
    x, single, window = _operands(b, node)
    pooled = nn_pool.max_pool(b, x, window, node.bool("ceil_mode"), keep_nan=True)
    return layout.squeeze(b, pooled, [0]) if single else pooled


@op("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_indices(b: Builder, node: Node) -> list[Value]:
    """The greatest element under each window, and its place in its channel."""
    x, single, window = _operands(b, node)
    values, indices = nn_pool.max_pool_indices(b, x, window, node.bool("ceil_mode"), False)
    area = ex.maximum(b.facts.simplify(ex.prod(x.shape[2:])), 1)
    local = b.te(
        lambda p: te.compute(p.shape, lambda *i: tirx.floormod(p(*i), ex.prim(area)), name="local"),
        indices,
        name="local",
    )
    return [layout.squeeze(b, value, [0]) if single else value for value in (values, local)]


@op("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(b: Builder, node: Node) -> Value:
    """The mean under each window, or its sum over `divisor_override`."""
    divisor = node.int("divisor_override") if node.has("divisor_override") else None
    if divisor == 0:
        node.fail("divisor_override is 0", reason="attribute")
    x, single, window = _operands(b, node)
    pooled = nn_pool.avg_pool(
        b, x, window, node.bool("ceil_mode"), node.bool("count_include_pad"), divisor
    )
    return layout.squeeze(b, pooled, [0]) if single else pooled


@op(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
)
def adaptive_avg_pool(b: Builder, node: Node) -> Value:
    """The mean over windows that share the axis out evenly."""
    rank = _rank(node)
    x, single = _batched(b, node.value("self"), rank)
    out = _sizes(node, x, rank)
    if all(b.facts.same(extent, 1) is True for extent in out):
        pooled = nn_pool.global_pool(b, x, "mean")
    else:
        pooled = _adaptive(b, x, out, mean=True)
    return layout.squeeze(b, pooled, [0]) if single else pooled


@op("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(b: Builder, node: Node) -> list[Any]:
    """The greatest element over windows that share the axis out evenly, and its place in its
    channel.
    """
    outputs = list(node.raw.outputs())
    rank = _rank(node)
    x, single = _batched(b, node.value("self"), rank)
    pooled = _adaptive(b, x, _sizes(node, x, rank), mean=False)
    results = [pooled]
    if len(outputs) > 1 and list(outputs[1].uses()):
        results.append(_first_positions(b, x, pooled))
    results = [layout.squeeze(b, value, [0]) if single else value for value in results]
    return [*results, None][:2]


def _sizes(node: Node, x: Value, rank: int) -> list[Extent]:
    items = (
        node.items("output_size")
        if not isinstance(node.get("output_size"), int)
        else (node.get("output_size"),)
    )
    sizes = [
        x.shape[2 + axis] if item is None else node.as_size(item, "output_size")
        for axis, item in enumerate(items)
    ]
    return sizes * rank if len(sizes) == 1 else sizes


Spans = list[tuple[Any, Any]]


def _taps(b: Builder, spatial: Sequence[Extent], out: Sequence[Extent]) -> list[Extent]:
    """How many elements a window has at most along each axis."""
    return [
        b.facts.simplify(ex.add(ex.floordiv(ex.sub(ex.add(n, o), 1), ex.maximum(o, 1)), 1))
        for n, o in zip(spatial, out, strict=True)
    ]


def _bounds(position: Any, spatial: Sequence[Extent], out: Sequence[Extent]) -> Spans:
    """Window i along an axis is [floor(i * n / o), ceil((i + 1) * n / o))."""
    return [
        (
            tirx.floordiv(p * ex.prim(n), ex.prim(o)),
            tirx.floordiv((p + 1) * ex.prim(n) + ex.prim(o) - 1, ex.prim(o)),
        )
        for p, n, o in zip(position, spatial, out, strict=True)
    ]


def _first_positions(b: Builder, x: Value, pooled: Value) -> Value:
    """The first position in its channel at which each window has its greatest element, or a NaN."""
    spatial, out = x.shape[2:], pooled.shape[2:]
    spans = _taps(b, spatial, out)
    nowhere = tirx.const(np.iinfo(np.int64).max, "int64")
    first = extreme_reducer("min", "int64")

    def compute(data: te.Tensor, greatest: te.Tensor) -> te.Tensor:
        taps = [
            te.reduce_axis((tirx.const(0, "int64"), ex.prim(span)), name=f"k{axis}")
            for axis, span in enumerate(spans)
        ]

        def element(n: Any, c: Any, *position: Any) -> Any:
            bounds = _bounds(position, spatial, out)
            point = [start + tap for (start, _), tap in zip(bounds, taps, strict=True)]
            inside = tirx.all(*(q < stop for q, (_, stop) in zip(point, bounds, strict=True)))
            flat = ex.prim(0)
            for q, extent in zip(point, spatial, strict=True):
                flat = flat * ex.prim(extent) + q
            own, most = data(n, c, *point), greatest(n, c, *position)
            is_it = tirx.EQ(own, most)
            if ew.is_float(x.dtype):
                wide = own if x.dtype == "float64" else own.astype("float32")
                is_it = tirx.Or(is_it, tirx.isnan(wide))
            candidate = tirx.if_then_else(inside, tirx.if_then_else(is_it, flat, nowhere), nowhere)
            return first(candidate, axis=taps)

        shape = [ex.prim(extent) for extent in pooled.shape]
        return te.compute(shape, element, name="positions")

    return b.te(compute, x, pooled, name="positions")


def _adaptive(b: Builder, x: Value, out: list[Extent], mean: bool) -> Value:
    """The mean or the greatest element of each window of `_bounds`."""
    out = list(b.extents(out, "pooled"))
    spatial = x.shape[2:]
    spans = _taps(b, spatial, out)
    work = ew.cast(b, x, "float32") if x.dtype in ("float16", "bfloat16") else x
    greatest = extreme_reducer("max", work.dtype, keep_nan=True)

    def compute(data: te.Tensor) -> te.Tensor:
        taps = [
            te.reduce_axis((tirx.const(0, "int64"), ex.prim(span)), name=f"k{axis}")
            for axis, span in enumerate(spans)
        ]

        def bounds(position: Any) -> Spans:
            return _bounds(position, spatial, out)

        def element(n: Any, c: Any, *position: Any) -> Any:
            point = [start + tap for (start, _), tap in zip(bounds(position), taps, strict=True)]
            inside = tirx.all(
                *(q < stop for q, (_, stop) in zip(point, bounds(position), strict=True))
            )
            fill = tirx.const(0, work.dtype) if mean else lowest(work.dtype)
            value = tirx.if_then_else(inside, data(n, c, *point), fill)
            return te.sum(value, axis=taps) if mean else greatest(value, axis=taps)

        shape = [*x.shape[:2], *out]
        total = te.compute([ex.prim(e) for e in shape], element, name="adaptive_pool")
        if not mean:
            return total

        def share(*i: Any) -> Any:
            area = ex.prim(1)
            for start, stop in bounds(i[2:]):
                area = area * (stop - start)
            return total(*i) / area.astype(work.dtype)

        return te.compute([ex.prim(e) for e in shape], share, name="adaptive_mean")

    return ew.cast(b, b.te(compute, work, name="adaptive_pool"), x.dtype)
