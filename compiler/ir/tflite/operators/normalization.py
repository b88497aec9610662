"""Softmax and operators that divide by a norm."""

import numpy as np

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import limits_of

_EPSILON = 1e-6
"""Of L2_NORMALIZATION: the least norm."""


@op("SOFTMAX")
def softmax(node: Node) -> str:
    """exp(beta * x), divided by its sum over the last axis."""
    beta = np.float32(node.option("beta"))
    if not node.is_quantized():
        x = node.x() if beta == 1 else node.put("Mul", node.x(), node.const(beta))
        return str(node.put("Softmax", x, axis=-1))
    return _quantized_softmax(node, beta)


def _quantized_softmax(node: Node, beta: np.float32) -> str:
    """Softmax of bytes by a table of exponentials of distances to the greatest."""
    node.require_bytes(0)
    scale, _ = node.scalar_grid(node.tensor(0))
    out, zero = node.scalar_grid(node.output)
    distances = np.arange(256, dtype=np.float32)
    table = np.exp(((-scale * beta) * distances).astype(np.float64)).astype(np.float32)
    wide, axes = node.cast(node.x(), "int32"), node.const([-1], "int64")
    distance = node.put("Sub", node.put("ReduceMax", wide, axes, keepdims=1), wide)
    powers = node.put("Gather", node.const(table), distance, axis=0)
    total = node.put("ReduceSum", powers, axes, keepdims=1)
    inverse = node.put("Div", node.const(1, "float32"), node.put("Mul", total, node.const(out)))
    shares = node.put("RoundAway", node.put("Mul", powers, inverse))
    low, high = limits_of(node.output.dtype)
    moved = node.put("Add", node.cast(shares, "int32"), node.const(zero, "int32"))
    return node.cast(node.clip(moved, low, high, "int32"), node.output.dtype)


@op("LOG_SOFTMAX")
def log_softmax(node: Node) -> str:
    """The logarithm of softmax over the last axis."""
    _require_floats(node)
    return str(node.put("LogSoftmax", node.x(), axis=-1))


def _require_floats(node: Node) -> None:
    if node.is_quantized():
        node.fail(
            f"{node.operator.name} of quantized integers is not supported",
            reason="unsupported_dtype",
        )


@op("L2_NORMALIZATION")
def l2_normalization(node: Node) -> str:
    """The last axis divided by its Euclidean norm."""
    _require_floats(node)
    x, axes = node.x(), node.const([-1], "int64")
    squares = node.put("ReduceSum", node.put("Mul", x, x), axes, keepdims=1)
    norm = node.put("Max", node.put("Sqrt", squares), node.const(_EPSILON, "float32"))
    return node.activate(node.put("Div", x, norm))
