"""Pooling over windows of an image."""

from typing import Any

import numpy as np

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.operators.convolution import plane_of_ones, window_attributes
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import activation_limits

_MOST_WEIGHTS = 1 << 26
"""Ones by which the bytes of windows are summed, a byte each."""


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
    window = _window(node)
    if not node.is_quantized():
        x = node.to_channels_first(node.x())
        return node.activate(node.to_channels_last(node.put("AveragePool", x, **window)))
    node.require_bytes(0)
    _require_equal_grids(node)
    y = divide_to_nearest(node, *_sum_windows(node, window))
    return node.cast(_clip_integers(node, y, "int32"), node.output.dtype)


def _sum_windows(node: Node, window: dict[str, Any]) -> tuple[str, str]:
    """The int32 sum of each window's bytes that lie in the image, channels last, and their count.

    A sum of bytes is a convolution by ones, in integers.
    """
    (height, width), channels = window["kernel_shape"], node.tensor(0).shape[3]
    if height * width * channels > _MOST_WEIGHTS:
        node.fail(f"windows of {height} x {width} over {channels} channels of integers")
    x = node.to_channels_first(node.x())
    ones = node.const(np.ones((channels, 1, height, width), np.int8))
    totals = node.put("ConvInteger", x, ones, **window, group=channels)
    total, elements = node.to_channels_last(totals), height * width
    if window["auto_pad"] == "VALID":
        return total, node.const(elements, "int32")
    mean = node.put("AveragePool", plane_of_ones(node, x), **window, count_include_pad=1)
    count = node.put("Round", node.put("Mul", mean, node.const(elements, "float32")))
    return total, node.to_channels_last(node.cast(count, "int32"))


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
