"""ONNX convolutions."""

from collections.abc import Sequence
from dataclasses import replace

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.onnx.window import auto_pad, window_of
from compiler.ir.ops.nn import conv as nn_conv
from compiler.ir.ops.nn.window import AutoPad, Window
from compiler.ir.ops.quantized import dequantized
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


@op("Conv")
def conv(b: Builder, node: Node) -> Value:
    """Convolution of [N, C, *spatial] with [O, C/group, *kernel]."""
    x, weight = node.value(0), node.value(1)
    window = window_of(b, node, x.shape[2:], kernel_of(b, node, weight))
    return nn_conv.conv(b, x, weight, node.optional(2), window, node.attr("group", 1))


def kernel_of(b: Builder, node: Node, weight: Value) -> tuple[Extent, ...]:
    """The weight's spatial extents, which kernel_shape may restate."""
    declared: Sequence[int] = node.attr("kernel_shape", None) or ()
    kernel = weight.shape[2:]
    if declared and len(declared) != len(kernel):
        node.fail(
            f"kernel_shape has {len(declared)} axes, the weight {len(kernel)}", reason="attribute"
        )
    if not declared:
        return kernel
    return tuple(
        b.same(k, s, f"kernel_shape {list(declared)} contradicts the weight's shape")
        for k, s in zip(kernel, declared, strict=True)
    )


@op("ConvTranspose")
def conv_transpose(b: Builder, node: Node) -> Value:
    """Transposed convolution of [N, C, *spatial] with [C, O/group, *kernel]."""
    x, weight = node.value(0), node.value(1)
    kernel = kernel_of(b, node, weight)
    pads = node.attr("pads", None) if auto_pad(node) is AutoPad.NOTSET else None
    window = Window.of(kernel, node.attr("strides", None), node.attr("dilations", None), pads)
    window, out = _transposed(b, node, window, x.shape[2:])
    groups, bias = node.attr("group", 1), node.optional(2)
    result = dequantized.conv_transpose(b, x, weight, window, groups, out)
    if result is not None:
        return nn_conv.add_bias(b, result, bias)
    return nn_conv.conv_transpose(b, x, weight, bias, window, groups, out)


def _transposed(
    b: Builder, node: Node, window: Window, extents: Sequence[Extent]
) -> tuple[Window, list[Extent]]:
    """Padding and result extents: either padding is given, or it follows from the
    result's extents.
    """
    mode = auto_pad(node)
    extra = node.attr("output_padding", None) or [0] * window.rank
    declared = node.attr("output_shape", None)
    if not declared and mode in (AutoPad.NOTSET, AutoPad.VALID):
        return window, [
            nn_conv.transposed_extent(b, window, axis, extent, extra[axis])
            for axis, extent in enumerate(extents)
        ]
    out = (
        list(declared)[-window.rank :]
        if declared
        else [ex.mul(e, s) for e, s in zip(extents, window.strides, strict=True)]
    )
    before, after = [], []
    for axis, extent in enumerate(extents):
        free = ex.add(
            ex.mul(ex.sub(extent, 1), window.strides[axis]), ex.add(window.reach(axis), extra[axis])
        )
        total = b.facts.simplify(ex.sub(free, out[axis]))
        if b.facts.decide(ex.greater_equal(total, 0)) is not True:
            total = b.facts.simplify(ex.maximum(total, 0))
        small = b.facts.simplify(ex.floordiv(total, 2))
        large = b.facts.simplify(ex.sub(total, small))
        upper = mode is AutoPad.SAME_UPPER
        before.append(small if upper else large)
        after.append(large if upper else small)
    return replace(window, before=tuple(before), after=tuple(after)), [
        b.facts.simplify(extent) for extent in out
    ]
