"""Convolutions."""

from collections.abc import Sequence

from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn import conv as nn_conv
from compiler.ir.ops.nn.window import Window
from compiler.ir.ops.quantized import dequantized
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def per_axis(node: Node, name: str, rank: int, default: int = 1) -> list[int]:
    """A list of one integer a spatial axis, a single one standing for all."""
    values = node.ints(name) if name in node.names else []
    return [default] * rank if not values else values * rank if len(values) == 1 else values


def _padding(
    b: Builder, node: Node, kernel: Sequence[Extent], dilations: Sequence[int]
) -> list[Extent]:
    """Padding before, then after every axis: given as numbers, or as `same` and `valid`."""
    padding = node.get("padding")
    rank = len(kernel)
    if not isinstance(padding, str):
        pads = per_axis(node, "padding", rank, 0)
        return [*pads, *pads]
    if padding == "valid":
        return [0] * (2 * rank)
    total = [ex.mul(ex.sub(k, 1), d) for k, d in zip(kernel, dilations, strict=True)]
    before = [b.facts.simplify(ex.floordiv(extent, 2)) for extent in total]
    return [
        *before,
        *(
            b.facts.simplify(ex.sub(extent, first))
            for extent, first in zip(total, before, strict=True)
        ),
    ]


@op(
    "conv1d",
    "conv2d",
    "conv3d",
    "_convolution",
    "convolution",
    "_convolution_mode",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
)
def conv(b: Builder, node: Node) -> Value:
    """[N, C, *spatial] (or without N) with [O, C/groups, *kernel], transposed with [C, O/groups,
    *kernel].
    """
    x, weight = node.value("input"), node.value("weight")
    rank = len(weight.shape) - 2
    single = len(x.shape) == rank + 1
    if single:
        x = layout.unsqueeze(b, x, [0])
    dilations, groups = per_axis(node, "dilation", rank), node.int("groups")
    window = Window.of(
        weight.shape[2:],
        per_axis(node, "stride", rank),
        dilations,
        _padding(b, node, weight.shape[2:], dilations),
    )
    if "transpose" in node.kind or ("transposed" in node.names and node.bool("transposed")):
        result = _transposed(b, node, x, weight, window, groups)
    else:
        result = _forward(b, node, x, weight, window, groups)
    return layout.squeeze(b, result, [0]) if single else result


def _forward(b: Builder, node: Node, x: Value, weight: Value, window: Window, groups: int) -> Value:
    bias = node.optional("bias")
    result = dequantized.conv(b, x, weight, window, groups)
    if result is None:
        return nn_conv.conv(b, x, weight, bias, window, groups)
    return nn_conv.add_bias(b, result, bias)


def _transposed(
    b: Builder, node: Node, x: Value, weight: Value, window: Window, groups: int
) -> Value:
    extra = per_axis(node, "output_padding", window.rank, 0)
    out = [
        nn_conv.transposed_extent(b, window, axis, extent, extra[axis])
        for axis, extent in enumerate(x.shape[2:])
    ]
    return nn_conv.conv_transpose(b, x, weight, node.optional("bias"), window, groups, out)
