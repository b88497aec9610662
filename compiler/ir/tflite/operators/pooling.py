"""Pooling over windows of an image."""

from typing import Any

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.operators.convolution import plane_of_ones, window_attributes
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import activation_limits

_MOST_SUMMED = 1 << 12
"""Bytes of a window: up to here 255 times as many have an error of less than a half in float32."""


def _window(node: Node) -> dict[str, Any]:
    node.require_rank(4)
    attributes = window_attributes(
        node, (node.option("filter_height"), node.option("filter_width"))
    )
    del attributes["dilations"]
    return attributes


def _require_equal_grids(node: Node) -> None:
    """Fail where the output's scale differs from the input's: no kernel rescales."""
    if node.scalar_grid(node.tensor(0)) != node.scalar_grid(node.output):
        node.fail("its input and output have different scales", reason="scales")


def _clip_integers(node: Node, x: str, dtype: str) -> str:
    low, high = activation_limits(node, node.output, node.option("activation"))
    return node.clip(x, low, high, dtype)


@op("MAX_POOL_2D")
def max_pool_2d(node: Node) -> str:
    """The greatest element of each window."""
    pooled = node.put("MaxPool", node.to_channels_first(node.x()), **_window(node))
    y = node.to_channels_last(pooled)
    if not node.is_quantized():
        return node.activate(y)
    node.require_bytes(0)
    _require_equal_grids(node)
    return _clip_integers(node, y, node.output.dtype) if node.option("activation") else y


@op("AVERAGE_POOL_2D")
def average_pool_2d(node: Node) -> str:
    """The mean of each window's elements that lie in the image."""
    window, x = _window(node), node.to_channels_first(node.x())
    if not node.is_quantized():
        return node.activate(node.to_channels_last(node.put("AveragePool", x, **window)))
    node.require_bytes(0)
    _require_equal_grids(node)
    total = _sum_windows(node, node.cast(x, "float32"), window)
    if window["auto_pad"] == "VALID":
        count = node.const(node.option("filter_height") * node.option("filter_width"), "int32")
    else:
        ones = plane_of_ones(node, x)
        count = _sum_windows(node, ones, window)
    y = divide_to_nearest(node, total, count)
    return node.cast(node.to_channels_last(_clip_integers(node, y, "int32")), node.output.dtype)


def _sum_windows(node: Node, x: str, window: dict[str, Any]) -> str:
    """The sum of each window of bytes in float32, as int32: a mean times its count, which is so
    near to the sum that it is the nearest integer.
    """
    count = node.option("filter_height") * node.option("filter_width")
    if count > _MOST_SUMMED:
        node.fail(f"a window of {count} elements of integers, the most are {_MOST_SUMMED}")
    mean = node.put("AveragePool", x, **window, count_include_pad=1)
    scaled = node.put("Mul", mean, node.const(count, "float32"))
    return node.cast(node.put("Round", scaled), "int32")


def divide_to_nearest(node: Node, total: str, count: str) -> str:
    """Int32 sums by positive counts, to the nearest integer, halves away from zero."""
    half = node.put("Div", count, node.const(2, "int32"))
    positive = node.put("Greater", total, node.const(0, "int32"))
    up, down = node.put("Add", total, half), node.put("Sub", total, half)
    return str(node.put("Div", node.put("Where", positive, up, down), count))


@op("L2_POOL_2D")
def l2_pool_2d(node: Node) -> str:
    """The root of the mean of each window's squares."""
    if node.is_quantized():
        node.fail("L2_POOL_2D of integers is not supported", reason="unsupported_dtype")
    x = node.to_channels_first(node.x())
    mean = node.put("AveragePool", node.put("Mul", x, x), **_window(node))
    return node.activate(node.to_channels_last(node.put("Sqrt", mean)))
