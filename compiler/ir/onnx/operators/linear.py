"""ONNX matrix products."""

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import linear
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout


@op("MatMul")
def matmul(b: Builder, node: Node) -> Value:
    """numpy's matmul."""
    return linear.matmul(b, node.value(0), node.value(1))


@op("Gemm", since=7)
def gemm(b: Builder, node: Node) -> Value:
    """alpha * A' * B' + beta * C, each prime an optional transpose."""
    x, y = node.value(0), node.value(1)
    if (len(x.shape), len(y.shape)) != (2, 2):
        node.fail(
            f"Gemm multiplies matrices, these have {len(x.shape)} and {len(y.shape)} axes",
            reason="shape",
        )
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    x = layout.transpose(b, x, [1, 0]) if node.attr("transA", 0) else x
    y = layout.transpose(b, y, [1, 0]) if node.attr("transB", 0) else y
    result = _scaled(b, linear.matmul(b, x, y), alpha)
    if node.has(2) and beta != 0:
        result = ew.add(b, result, _scaled(b, node.value(2), beta))
    return result


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    return (
        x
        if factor == 1
        else ew.multiply(b, x, Known(np.asarray(factor, np.dtype(x.dtype)), x.dtype))
    )
