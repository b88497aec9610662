"""ONNX pooling."""

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.onnx.window import window_of
from compiler.ir.ops.nn import pool
from compiler.ir.ops.nn.window import Window


def _pool(b: Builder, node: Node) -> tuple[Value, Window, bool]:
    x = node.value(0)
    return (
        x,
        window_of(b, node, x.shape[2:], node.attr("kernel_shape")),
        bool(node.attr("ceil_mode", 0)),
    )


@op("MaxPool")
def max_pool(b: Builder, node: Node) -> list[Value | None]:
    """The greatest element under each window, and its index where wanted."""
    x, window, ceil = _pool(b, node)
    if not node.wants(1):
        return [pool.max_pool(b, x, window, ceil)]
    return list(pool.max_pool_indices(b, x, window, ceil, bool(node.attr("storage_order", 0))))


@op("AveragePool")
def average_pool(b: Builder, node: Node) -> Value:
    """The mean under each window."""
    x, window, ceil = _pool(b, node)
    return pool.avg_pool(b, x, window, ceil, bool(node.attr("count_include_pad", 0)))


@op("LpPool")
def lp_pool(b: Builder, node: Node) -> Value:
    """The p-norm under each window."""
    x, window, ceil = _pool(b, node)
    return pool.lp_pool(b, x, window, ceil, node.attr("p", 2))


@op("GlobalAveragePool")
def global_average_pool(b: Builder, node: Node) -> Value:
    """The mean over all spatial axes."""
    return pool.global_pool(b, node.value(0), "mean")


@op("GlobalMaxPool")
def global_max_pool(b: Builder, node: Node) -> Value:
    """The greatest element over all spatial axes."""
    return pool.global_pool(b, node.value(0), "max")


@op("GlobalLpPool", since=2)
def global_lp_pool(b: Builder, node: Node) -> Value:
    """The p-norm over all spatial axes."""
    return pool.global_lp_pool(b, node.value(0), node.attr("p", 2))
