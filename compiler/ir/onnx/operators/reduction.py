"""ONNX reductions."""

from collections.abc import Callable

import numpy as np
from tvm import relax

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import elementwise as ew

_MEAN_OF_NONE = 0.0
"""As ONNX Runtime has it, where the specification leaves a mean of no elements undefined."""


def _reduced(b: Builder, node: Node, x: Value, kind: str, keepdims: bool | None = None) -> Value:
    """Axes from the attribute, the known input or a run-time input; none means all, unless
    noop_with_empty_axes. keepdims: the node's where None.
    """
    if keepdims is None:
        keepdims = bool(node.attr("keepdims", 1))
    axes = node.optional(1)
    if axes is not None and not (isinstance(axes, Known) and not axes.symbolic):
        limit_values(b, node, 1, -len(x.shape), len(x.shape) - 1, usual=True)
        noop = bool(node.attr("noop_with_empty_axes", 0))
        return rd.reduce_at_run_time(b, x, kind, axes, keepdims, noop, _MEAN_OF_NONE)
    listed: list[int]
    if axes is not None:
        listed = [int(axis) for axis in axes.data.reshape(-1).tolist()]  # type: ignore[union-attr]
    else:
        listed = [int(axis) for axis in node.attr("axes", [])]
    if not listed:
        listed = [] if node.attr("noop_with_empty_axes", 0) else list(range(len(x.shape)))
    return rd.reduce(b, x, kind, listed, keepdims, mean_of_none=_MEAN_OF_NONE)


def _plain(name: str, kind: str) -> None:
    @op(name)
    def handler(b: Builder, node: Node) -> Value:
        return _reduced(b, node, node.value(0), kind)

    handler.__doc__ = f"The {kind} over axes."


for _name, _kind in (
    ("ReduceSum", "sum"),
    ("ReduceProd", "prod"),
    ("ReduceMax", "max"),
    ("ReduceMin", "min"),
    ("ReduceMean", "mean"),
):
    _plain(_name, _kind)


def _unary(
    b: Builder,
    x: Value,
    emit: Callable[[relax.Expr], relax.Expr],
    fold: Callable[[np.ndarray], np.ndarray],
) -> Value:
    return ew.unary(b, x, emit, numpy=fold)


@op("ReduceL1")
def l1(b: Builder, node: Node) -> Value:
    """Sum of absolute values."""
    return _reduced(b, node, _unary(b, node.value(0), relax.op.abs, np.abs), "sum")


@op("ReduceSumSquare")
def sum_square(b: Builder, node: Node) -> Value:
    """Sum of squares."""
    x = node.value(0)
    return _reduced(b, node, ew.multiply(b, x, x), "sum")


@op("ReduceL2")
def l2(b: Builder, node: Node) -> Value:
    """Square root of the sum of squares, of integers by way of floats."""
    x = node.value(0)
    work = x if ew.is_float(x.dtype) else ew.cast(b, x, "float64")
    total = _reduced(b, node, ew.multiply(b, work, work), "sum")
    return ew.cast(b, _unary(b, total, relax.op.sqrt, np.sqrt), x.dtype)


@op("ReduceLogSum")
def log_sum(b: Builder, node: Node) -> Value:
    """Logarithm of the sum."""
    x = node.value(0)
    work = x if ew.is_float(x.dtype) else ew.cast(b, x, "float64")
    return ew.cast(b, _unary(b, _reduced(b, node, work, "sum"), relax.op.log, np.log), x.dtype)


@op("ReduceLogSumExp")
def log_sum_exp(b: Builder, node: Node) -> Value:
    """Logarithm of the sum of exponentials, from which the greatest of the elements that are summed
    is taken: the sum neither overflows nor vanishes.
    """
    x = node.value(0)
    work = x if ew.is_float(x.dtype) else ew.cast(b, x, "float64")
    top = _reduced(b, node, work, "max", keepdims=True)
    finite = ew.where(
        b,
        ew.compare(
            b,
            _unary(b, top, relax.op.abs, np.abs),
            Known(np.asarray(np.inf, np.dtype(work.dtype)), work.dtype),
            "less",
        ),
        top,
        Known(np.zeros((), np.dtype(work.dtype)), work.dtype),
    )
    total = _reduced(b, node, _unary(b, ew.subtract(b, work, finite), relax.op.exp, np.exp), "sum")
    greatest = _reduced(b, node, finite, "max")
    return ew.cast(b, ew.add(b, _unary(b, total, relax.op.log, np.log), greatest), x.dtype)
