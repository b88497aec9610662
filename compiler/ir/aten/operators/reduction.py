"""Reductions over all axes or some."""

import math
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import pair, scalar, to_float
from compiler.ir.aten.operators.arithmetic import greater_of, lesser_of
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.math import scan
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.shape import layout, sorting
from compiler.ir.shapes import extents as ex


def reduced_axes(node: Node, x: Value, name: str = "dim") -> list[int]:
    """The reduced axes; None and an empty list mean all."""
    declared = node.axes(name, len(x.shape)) if name in node.names else None
    axes = list(range(len(x.shape))) if declared is None else declared
    return axes if x.shape else []


def _summed(node: Node, x: Value) -> str:
    """The dtype that sums have: int64 for integers and bool unless one is asked for."""
    return node.dtype("dtype", x.dtype if ew.is_float(x.dtype) else "int64")


@op("sum")
def total(b: Builder, node: Node) -> Value:
    """The sum."""
    x = node.value("self")
    return rd.reduce(
        b,
        ew.cast(b, x, _summed(node, x)),
        "sum",
        reduced_axes(node, x),
        node.bool("keepdim", False),
    )


@op("prod")
def prod(b: Builder, node: Node) -> Value:
    """The product."""
    x = node.value("self")
    return rd.reduce(
        b,
        ew.cast(b, x, _summed(node, x)),
        "prod",
        reduced_axes(node, x),
        node.bool("keepdim", False),
    )


@op("mean")
def mean(b: Builder, node: Node) -> Value:
    """The mean."""
    x = node.value("self")
    return rd.reduce(
        b,
        ew.cast(b, x, node.dtype("dtype", x.dtype)),
        "mean",
        reduced_axes(node, x),
        node.bool("keepdim", False),
    )


@op("amax")
def amax(b: Builder, node: Node) -> Value:
    """The greatest element."""
    x = node.value("self")
    return rd.reduce(b, x, "max", reduced_axes(node, x), node.bool("keepdim", False), keep_nan=True)


@op("amin")
def amin(b: Builder, node: Node) -> Value:
    """The least element."""
    x = node.value("self")
    return rd.reduce(b, x, "min", reduced_axes(node, x), node.bool("keepdim", False), keep_nan=True)


@op("max")
def greatest(b: Builder, node: Node) -> Any:
    """The greatest element of all, of two tensors at each place, or along an axis with
    its index.
    """
    return (
        greater_of(b, *pair(b, node)) if "other" in node.names else _extreme(b, node, greatest=True)
    )


@op("min")
def least(b: Builder, node: Node) -> Any:
    """The least element of all, of two tensors at each place, or along an axis with its index."""
    return (
        lesser_of(b, *pair(b, node)) if "other" in node.names else _extreme(b, node, greatest=False)
    )


def _extreme(b: Builder, node: Node, greatest: bool) -> Any:
    x, kind = node.value("self"), "max" if greatest else "min"
    if "dim" not in node.names:
        return rd.reduce(b, x, kind, list(range(len(x.shape))), False, keep_nan=True)
    axis = node.axis("dim", len(x.shape))
    index = _position(b, x, axis, greatest, node.bool("keepdim"))
    extreme = rd.reduce(b, x, kind, [axis] if x.shape else [], node.bool("keepdim"), keep_nan=True)
    return [extreme, index]


def _position(b: Builder, x: Value, axis: int, greatest: bool, keepdim: bool) -> Value:
    """The first index of the extreme element along an axis, or of the first NaN."""
    if not x.shape:
        return Known(np.asarray(0, np.int64), "int64")
    source = ew.cast(b, x, "int8") if x.dtype == "bool" else x
    position = sorting.arg_extreme(b, source, axis, greatest, False, nan=True)
    return position if keepdim else layout.squeeze(b, position, [axis])


@op("argmax")
def argmax(b: Builder, node: Node) -> Value:
    """The first index of the greatest element, along an axis or of the flattened tensor."""
    return _argument(b, node, greatest=True)


@op("argmin")
def argmin(b: Builder, node: Node) -> Value:
    """The first index of the least element, along an axis or of the flattened tensor."""
    return _argument(b, node, greatest=False)


def _argument(b: Builder, node: Node, greatest: bool) -> Value:
    x = node.value("self")
    if node.has("dim"):
        return _position(b, x, node.axis("dim", len(x.shape)), greatest, node.bool("keepdim"))
    flat = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))])
    position = _position(b, flat, 0, greatest, False)
    return layout.reshape(b, position, [1] * len(x.shape)) if node.bool("keepdim") else position


@op("aminmax")
def aminmax(b: Builder, node: Node) -> list[Value]:
    """The least and the greatest element, of all or along an axis."""
    x = node.value("self")
    axes = (
        [node.axis("dim", len(x.shape))]
        if node.has("dim") and x.shape
        else list(range(len(x.shape)))
    )
    return [
        rd.reduce(b, x, kind, axes, node.bool("keepdim"), keep_nan=True) for kind in ("min", "max")
    ]


@op("nansum", "nanmean")
def of_numbers(b: Builder, node: Node) -> Value:
    """The sum or mean of the elements that are numbers."""
    x = node.value("self")
    x = ew.cast(b, x, _summed(node, x))
    axes, keepdim = reduced_axes(node, x), node.bool("keepdim")
    if not ew.is_float(x.dtype):
        return rd.reduce(b, x, "sum", axes, keepdim)
    number = pw.pointwise(b, lambda v: tirx.Not(tirx.isnan(v.astype("float64"))), x, name="number")
    total = rd.reduce(b, ew.where(b, number, x, scalar(b, 0, x.dtype)), "sum", axes, keepdim)
    return (
        total
        if node.kind == "aten::nansum"
        else ew.divide(b, total, rd.reduce(b, ew.cast(b, number, x.dtype), "sum", axes, keepdim))
    )


@op("any")
def any_of(b: Builder, node: Node) -> Value:
    """True where any element is true."""
    return _truths(b, node, "max")


@op("all")
def all_of(b: Builder, node: Node) -> Value:
    """True where all elements are true."""
    return _truths(b, node, "min")


def _truths(b: Builder, node: Node, kind: str) -> Value:
    operand = node.value("self")
    x = ew.cast(b, operand, "bool")
    result = rd.reduce(b, x, kind, reduced_axes(node, x), node.bool("keepdim", False))
    return ew.cast(b, result, "uint8") if operand.dtype == "uint8" else result


@op("count_nonzero")
def count_nonzero(b: Builder, node: Node) -> Value:
    """How many elements are not zero."""
    x = node.value("self")
    return rd.reduce(
        b, ew.cast(b, ew.cast(b, x, "bool"), "int64"), "sum", reduced_axes(node, x), False
    )


@op("var")
def var(b: Builder, node: Node) -> Value:
    """The variance."""
    return _variance(b, node)[0]


@op("std")
def std(b: Builder, node: Node) -> Value:
    """The standard deviation."""
    return norm.sqrt(b, _variance(b, node)[0])


@op("var_mean")
def var_mean(b: Builder, node: Node) -> list[Value]:
    """The variance and the mean."""
    return list(_variance(b, node))


@op("std_mean")
def std_mean(b: Builder, node: Node) -> list[Value]:
    """The standard deviation and the mean."""
    variance, middle = _variance(b, node)
    return [norm.sqrt(b, variance), middle]


def _variance(b: Builder, node: Node) -> tuple[Value, Value]:
    """Sum of squared distances from the mean over the count less the correction (1 unless told
    otherwise).
    """
    x, keepdim = node.value("self"), node.bool("keepdim", False)
    axes = reduced_axes(node, x)
    correction = (
        node.float("correction") if node.has("correction") else float(node.bool("unbiased", True))
    )
    centred, middle = norm.moments(b, x, axes)
    squares = rd.reduce(b, ew.multiply(b, centred, centred), "sum", axes, keepdim)
    count = scalar(b, b.facts.simplify(ex.prod(x.shape[axis] for axis in axes)), squares.dtype)
    divisor = ew.binary(
        b,
        ew.subtract(b, count, scalar(b, correction, squares.dtype)),
        scalar(b, 0, squares.dtype),
        relax.op.maximum,
        numpy=np.maximum,
    )
    mean = middle if keepdim else layout.squeeze(b, middle, axes)
    return ew.cast(b, ew.divide(b, squares, divisor), x.dtype), ew.cast(b, mean, x.dtype)


@op("logsumexp", "special_logsumexp")
def logsumexp(b: Builder, node: Node) -> Value:
    """log(sum(exp(self))), the greatest element taken out so that nothing overflows."""
    x = to_float(b, node.value("self"))
    axes, keepdim = reduced_axes(node, x), node.bool("keepdim", False)
    top = rd.reduce(b, x, "max", axes, True)
    zero, infinity = scalar(b, 0, x.dtype), scalar(b, np.inf, x.dtype)
    top = ew.where(
        b, ew.compare(b, ew.unary(b, top, relax.op.abs, numpy=np.abs), infinity, "less"), top, zero
    )
    powers = ew.unary(b, ew.subtract(b, x, top), relax.op.exp, numpy=np.exp)
    result = ew.add(
        b, ew.unary(b, rd.reduce(b, powers, "sum", axes, True), relax.op.log, numpy=np.log), top
    )
    return result if keepdim else layout.squeeze(b, result, axes)


@op("cumsum")
def cumsum(b: Builder, node: Node) -> Value:
    """Running sums along an axis."""
    return _running(b, node, lambda p, q: p + q, 0)


@op("cumprod")
def cumprod(b: Builder, node: Node) -> Value:
    """Running products along an axis."""
    return _running(b, node, lambda p, q: p * q, 1)


def _running(b: Builder, node: Node, combine: Any, start: int) -> Value:
    x = node.value("self")
    x = ew.cast(b, x, _summed(node, x))
    return (
        x
        if not x.shape
        else scan.cumulate(b, x, node.axis("dim", len(x.shape)), combine, start, False, False)
    )


@op("cummax", "cummin")
def running_extreme(b: Builder, node: Node) -> list[Value]:
    """Running extremes along an axis, and where each was last seen."""
    x = node.value("self")
    if not x.shape:
        return [x, Known(np.asarray(0, np.int64), "int64")]
    source = ew.cast(b, x, "int8") if x.dtype == "bool" else x
    values, indices = scan.running_extremes(
        b, source, node.axis("dim", len(x.shape)), node.kind == "aten::cummax"
    )
    return [ew.cast(b, values, x.dtype), indices]


@op("logcumsumexp")
def logcumsumexp(b: Builder, node: Node) -> Value:
    """log(cumsum(exp(self))) along an axis."""
    x = node.value("self")
    if not x.shape:
        return x
    return scan.cumulate(
        b, x, node.axis("dim", len(x.shape)), fn.logaddexp(math.e), -math.inf, False, False
    )
