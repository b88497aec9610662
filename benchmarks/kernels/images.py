"""Cases of convolutions and pooling over images."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from benchmarks.kernels.case import Arithmetic, Case, Inputs, floats
from tests.compiler.passes import families

op = relax.op

_TILE, _WINDOW = 4, 6
"""Sides of a tile of results of Winograd's F(4x4, 3x3), and of what is multiplied for it."""


def convolution(
    family: str, channels: int, out: int, kernel: int, size: int, stride: int = 1, groups: int = 1
) -> Case:
    """A square image by square windows, with a bias and a rectifier."""
    built = families.convolution(channels, out, kernel, stride, groups)
    result = -(-size // stride)
    window = channels // groups * kernel**2
    computed, weights = None, out * window
    if family == "winograd":
        weights = channels * out * _WINDOW**2
        computed = 2 * weights * (-(-size // _TILE)) ** 2
    grouped = f", {groups} groups" if 1 < groups < channels else ""
    return Case(
        family,
        f"{channels}->{out} {kernel}x{kernel}/{stride} at {size}{grouped}",
        *_channels_last(built.graph, built.inputs),
        {"n": 1, "h": size, "w": size},
        2 * result**2 * out * window,
        floats((size, size, channels), (result, result, out), (weights,)),
        computed=computed,
    )


def int8_convolution(channels: int, out: int, kernel: int, size: int) -> Case:
    """Bytes by constant bytes, accumulated in 32 bits."""
    built = families.quantized_convolution(channels, out, kernel, 1, 77)
    return Case(
        "int8",
        f"{channels}->{out} {kernel}x{kernel}/1 at {size}",
        *_channels_last(built.graph, built.inputs),
        {"n": 1, "h": size, "w": size},
        2 * size**2 * out * channels * kernel**2,
        channels * (size**2 + out * kernel**2) + floats((size, size, out)),
        arithmetic=Arithmetic.INT8,
    )


def volumes(channels: int, frames: int, size: int) -> Case:
    """3x3x3 over a volume, as in nets for video."""
    weight = np.random.default_rng(0).standard_normal((channels, channels, 3, 3, 3)) * 0.05
    kernel = relax.const(weight.astype("float32"))
    image = (frames, size, size, channels)

    def graph(builder: Any, x: Any) -> Any:
        return op.nn.relu(builder.emit(op.nn.conv3d(x, kernel, 1, [1] * 6)))

    return Case(
        "grouped_conv",
        f"{channels}->{channels} 3x3x3/1 at {frames}x{size}",
        *_channels_last(graph, {"x": (("n", channels, "d", "h", "w"), "float32")}),
        {"n": 1, "d": frames, "h": size, "w": size},
        2 * frames * size**2 * channels**2 * 27,
        floats(image, image, (channels, channels, 27)),
    )


def _channels_last(
    graph: Callable[..., Any], inputs: Inputs
) -> tuple[Callable[..., Any], dict[str, tuple[tuple[Any, ...], str]]]:
    """The graph of one image with channels last and its input, as inside of a net, where the
    compiler keeps images so and transposes none.
    """
    [(name, ((batch, channels, *sides), dtype))] = inputs.items()
    axes = len(sides) + 2
    first, last = [0, axes - 1, *range(1, axes - 1)], [0, *range(2, axes), 1]

    def transposed(builder: Any, x: Any) -> Any:
        image = builder.emit(op.permute_dims(x, first))
        return op.permute_dims(builder.emit(graph(builder, image)), last)

    return transposed, {name: ((batch, *sides, channels), dtype)}


def max_pool_row(channels: int, size: int) -> Case:
    """The greatest of three neighbours, every second one, along a row as sound has it."""

    def graph(builder: Any, x: Any) -> Any:
        return op.nn.max_pool2d(x, [1, 3], [1, 2], [0, 1, 0, 1])

    result = -(-size // 2)
    return Case(
        "pooling",
        f"max 3/2 of {channels} at {size}",
        *_channels_last(graph, {"x": (("n", channels, 1, "w"), "float32")}),
        {"n": 1, "w": size},
        3 * result * channels,
        floats((size, channels), (result, channels)),
    )


def max_pool(channels: int, size: int, batch: int = 1) -> Case:
    """3x3 in steps of two, channels last; a comparison counts as one operation."""

    def graph(builder: Any, x: Any) -> Any:
        return op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC")

    result = size // 2
    return Case(
        "pooling",
        f"max 3x3/2 of {batch}x{channels} at {size}",
        graph,
        {"x": (("n", "h", "w", channels), "float32")},
        {"n": batch, "h": size, "w": size},
        9 * batch * result**2 * channels,
        batch * floats((size, size, channels), (result, result, channels)),
    )
