"""ONNX operators on quantized tensors, also those that ONNX Runtime keeps in its own domain."""

from collections.abc import Mapping
from dataclasses import replace

from compiler.ir.formats import WIDTHS
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.model.dtypes import CARRIED, DTYPES
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.convolution import kernel_of
from compiler.ir.onnx.registry import op
from compiler.ir.onnx.window import window_of
from compiler.ir.ops.nn import conv
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import integer, small_types
from compiler.ir.ops.quantized import quantize as qt
from compiler.ir.ops.quantized.dequantized import BYTES, Dequantized
from compiler.ir.ops.quantized.quantize import Grid

MICROSOFT = "com.microsoft"


def grid_of(node: Node, scale: int, axis: int = 0) -> Grid:
    """The grid whose scale is that input and whose zero point, where given, is the one after it."""
    return Grid(node.value(scale), node.optional(scale + 1), axis)


def dtype_attr(node: Node, name: str, allowed: Mapping[int, str] = DTYPES) -> str | None:
    """An attribute that names an element type, None where it is absent; fails for types that are
    not `allowed`.
    """
    code = node.attr(name, 0)
    if not code:
        return None
    if code not in allowed:
        node.fail(
            f"{name} is an element type that is not supported (code {code})",
            reason="unsupported_dtype",
        )
    return allowed[code]


@op("QuantizeLinear", since=10)
def quantize_linear(b: Builder, node: Node) -> Value:
    """Reals to integers: by one scale, one for each place on `axis`, or one a block along it."""
    x, grid = node.value(0), _grid(node)
    zero = grid.zero
    dtype = zero.dtype if zero is not None else dtype_attr(node, "output_dtype", CARRIED)
    precision = dtype_attr(node, "precision")
    if precision is None and not ew.is_float(grid.scale.dtype):
        precision = "float32"
    return qt.quantize(
        b, x, grid, dtype or "uint8", precision, saturate=bool(node.attr("saturate", 1))
    )


@op("DequantizeLinear", since=10)
def dequantize_linear(b: Builder, node: Node) -> Value:
    """Integers to reals, the inverse of QuantizeLinear."""
    x, grid = node.value(0), _grid(node)
    result = qt.dequantize(b, x, grid, dtype_attr(node, "output_dtype"))
    has_bytes = x.dtype in BYTES or WIDTHS.get(x.dtype) == 4
    if has_bytes and result.dtype == grid.scale.dtype == "float32":
        integers = small_types.widen(b, x)
        zero = None if grid.zero is None else small_types.widen(b, grid.zero)
        b.dequantized[result] = Dequantized(integers, replace(grid, zero=zero))
    return result


op("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
op("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


def _grid(node: Node) -> Grid:
    block = node.attr("block_size", 0)
    scale, zero, axis = node.value(1), node.optional(2), node.attr("axis", 1)
    rank = len(node.value(0).shape)
    if len(scale.shape) == 0 or (rank <= 1 and not block):
        axis = 0
    return Grid(scale, zero, axis, block)


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(b: Builder, node: Node) -> list[Value | None]:
    """Integers, scale and zero point, the latter two from the range of the input."""
    return list(qt.dynamic(b, node.value(0)))


@op("MatMulInteger", since=10)
def matmul_integer(b: Builder, node: Node) -> Value:
    """The int32 product of integers less their zero points."""
    return integer.matmul(b, node.value(0), node.value(1), node.optional(2), node.optional(3))


@op("ConvInteger", since=10)
def conv_integer(b: Builder, node: Node) -> Value:
    """The int32 convolution of integers less their zero points."""
    x, weight = node.value(0), node.value(1)
    window = window_of(b, node, x.shape[2:], kernel_of(b, node, weight))
    return integer.conv(
        b, x, weight, node.optional(2), node.optional(3), window, node.attr("group", 1)
    )


@op("QLinearMatMul", since=10)
def qlinear_matmul(b: Builder, node: Node) -> Value:
    """The matmul of quantized tensors, quantized by a third scale and zero point."""
    x, x_grid, y, y_grid = node.value(0), grid_of(node, 1), node.value(3), grid_of(node, 4)
    total = integer.matmul(b, x, y, x_grid.zero, y_grid.zero)
    values = qt.rescale(
        b, total, x_grid.scale, max(len(x.shape) - 2, 0), y_grid.scale, len(total.shape) - 1
    )
    return qt.quantize(b, values, grid_of(node, 6), node.value(7).dtype, "float32")


@op("QLinearConv", since=10)
def qlinear_conv(b: Builder, node: Node) -> Value:
    """The convolution of quantized tensors, quantized by a third scale and zero point; the bias is
    int32, its scale the product of theirs.
    """
    x, x_grid, weight, weight_grid = (
        node.value(0),
        grid_of(node, 1),
        node.value(3),
        grid_of(node, 4),
    )
    window = window_of(b, node, x.shape[2:], kernel_of(b, node, weight))
    total = integer.conv(b, x, weight, x_grid.zero, weight_grid.zero, window, node.attr("group", 1))
    total = conv.add_bias(b, total, node.optional(8))
    values = qt.rescale(b, total, x_grid.scale, 0, weight_grid.scale, 1)
    return qt.quantize(b, values, grid_of(node, 6), node.value(7).dtype, "float32")
