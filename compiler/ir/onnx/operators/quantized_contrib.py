"""Operators on quantized tensors of ONNX Runtime's own domain: what its quantizer writes."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators import recurrent
from compiler.ir.onnx.operators.contrib import embed_rows, sum_mask
from compiler.ir.onnx.operators.quantized import MICROSOFT, grid_of
from compiler.ir.onnx.registry import Result, op
from compiler.ir.onnx.window import window_of
from compiler.ir.ops.nn import norm, pool
from compiler.ir.ops.nn.norm import constant
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs
from compiler.ir.ops.quantized import integer
from compiler.ir.ops.quantized import quantize as qt
from compiler.ir.ops.quantized.quantize import Grid
from compiler.ir.ops.quantized.recurrent import QuantizedWeights
from compiler.ir.ops.shape import layout


def _real(b: Builder, node: Node, index: int) -> Value:
    """The quantized input whose scale and zero point follow it, as float32."""
    return qt.dequantize(b, node.value(index), grid_of(node, index + 1), "float32")


def _quantized(b: Builder, node: Node, values: Value, scale: int, like: int = 0) -> Value:
    """Floats quantized by the scale in that input and the zero point after it; without one, in the
    dtype of the input `like`.
    """
    grid = grid_of(node, scale)
    return qt.quantize(
        b, values, grid, (node.value(like) if grid.zero is None else grid.zero).dtype, "float32"
    )


def _binary(name: str, combine: Callable[[Builder, Value, Value], Value]) -> None:
    @op(name, domain=MICROSOFT)
    def handler(b: Builder, node: Node) -> Value:
        return _quantized(b, node, combine(b, _real(b, node, 0), _real(b, node, 3)), 6)

    handler.__doc__ = f"{name}: both inputs as reals, the result on its own grid."


_binary("QLinearAdd", ew.add)
_binary("QLinearMul", ew.multiply)


@op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(b: Builder, node: Node) -> Value:
    """1 / (1 + exp(-x)) on its own grid."""
    return _quantized(b, node, ew.unary(b, b.tensor(_real(b, node, 0)), relax.op.sigmoid), 3)


@op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(b: Builder, node: Node) -> Value:
    """x where positive, alpha * x elsewhere, on its own grid."""
    alpha = node.attr("alpha", 0.01)
    return _quantized(
        b,
        node,
        programs.pointwise(b, lambda x: fn.leaky(x, alpha), _real(b, node, 0), name="leaky_relu"),
        3,
    )


@op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(b: Builder, node: Node) -> Value:
    """Softmax on its own grid; before opset 13 over all axes from `axis` on together."""
    x = _real(b, node, 0)
    rank = len(x.shape)
    axis = layout.axis_of(node.attr("axis", -1), rank)
    if node.attr("opset", 13) >= 13 or axis == rank - 1:
        return _quantized(b, node, norm.softmax(b, x, axis), 3)
    flat = norm.softmax(b, layout.flatten(b, x, axis), 1)
    return _quantized(b, node, layout.reshape(b, flat, x.shape), 3)


@op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(b: Builder, node: Node) -> Value:
    """The mean under each window, on its own grid."""
    x = _channels_first(b, node, _real(b, node, 0))
    window = window_of(b, node, x.shape[2:], node.attr("kernel_shape"))
    ceil, count_padding = bool(node.attr("ceil_mode", 0)), bool(node.attr("count_include_pad", 0))
    return _quantized(
        b, node, _channels_back(b, node, pool.avg_pool(b, x, window, ceil, count_padding)), 3
    )


@op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(b: Builder, node: Node) -> Value:
    """The mean over all spatial axes, on its own grid."""
    x = _channels_first(b, node, _real(b, node, 0))
    return _quantized(b, node, _channels_back(b, node, pool.global_pool(b, x, "mean")), 3)


def _channels_first(b: Builder, node: Node, x: Value) -> Value:
    rank = len(x.shape)
    return (
        layout.transpose(b, x, [0, rank - 1, *range(1, rank - 1)])
        if node.attr("channels_last", 0)
        else x
    )


def _channels_back(b: Builder, node: Node, x: Value) -> Value:
    return (
        layout.transpose(b, x, [0, *range(2, len(x.shape)), 1])
        if node.attr("channels_last", 0)
        else x
    )


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(b: Builder, node: Node) -> Value:
    """Tensors of different grids joined along an axis, on the grid of the first two inputs."""
    grid = grid_of(node, 0)
    dtype = (node.value(2) if grid.zero is None else grid.zero).dtype
    parts = [
        qt.quantize(b, _real(b, node, index), grid, dtype, "float32")
        for index in range(2, len(node.inputs), 3)
    ]
    return layout.concat(b, parts, node.attr("axis"))


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(b: Builder, node: Node) -> Value:
    """Where the condition holds the first tensor, else the second, on a third grid."""
    return _quantized(
        b, node, ew.where(b, node.value(0), _real(b, node, 1), _real(b, node, 4)), 7, like=1
    )


@op("QGemm", domain=MICROSOFT)
def qgemm(b: Builder, node: Node) -> Value:
    """alpha * A' B' + C of quantized tensors, C int32 of the product's scale; as float32 where no
    output grid is given.
    """
    x, y = (
        layout.transpose(b, node.value(i), [1, 0]) if node.attr(name, 0) else node.value(i)
        for i, name in ((0, "transA"), (3, "transB"))
    )
    total = integer.matmul(b, x, y, node.optional(2), node.optional(5))
    total = ew.add(b, total, node.value(6)) if node.has(6) else total
    values = qt.rescale(b, total, node.value(1), 0, node.value(4), 1)
    alpha = node.attr("alpha", 1.0)
    values = values if alpha == 1 else ew.multiply(b, values, constant(alpha, "float32"))
    return _quantized(b, node, values, 7) if node.has(7) else values


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(b: Builder, node: Node) -> Value:
    """The product of quantized tensors as floats, plus an optional bias."""
    x, y = node.value(0), node.value(1)
    total = integer.matmul(b, x, y, node.optional(4), node.optional(5))
    values = qt.rescale(
        b, total, node.value(2), max(len(x.shape) - 2, 0), node.value(3), len(total.shape) - 1
    )
    return ew.cast(b, _biased(b, node, values, 6), node.value(2).dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(b: Builder, node: Node) -> Value:
    """Floats, quantized by their own range, times a quantized matrix, plus an optional bias."""
    x, scale, zero = qt.dynamic(b, node.value(0))
    total = integer.matmul(b, x, node.value(1), zero, node.optional(3))
    return _biased(b, node, qt.rescale(b, total, scale, 0, node.value(2), len(total.shape) - 1), 4)


def _biased(b: Builder, node: Node, x: Value, index: int) -> Value:
    return ew.add(b, x, node.value(index)) if node.has(index) else x


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_norm(b: Builder, node: Node) -> list[Value | None]:
    """Rows of quantized tables of words, positions and segments added up and normalised; the mask's
    sums.
    """

    def real(values: Value, index: int) -> Value:
        # Scales and zero points are in the order of the tables that they belong to.
        grid = Grid(node.value(index + 6), node.optional(index + 11))
        return qt.dequantize(b, values, grid, "float32")

    total = real(embed_rows(b, node, 2, 0), 2)
    positions = layout.strided_slice(b, node.value(3), 0, 0, node.value(0).shape[1], 1)
    total = ew.add(b, total, real(positions, 3))
    if node.has(1):
        total = ew.add(b, total, real(embed_rows(b, node, 4, 1), 4))
    gamma, beta = (real(node.value(index), index) for index in (5, 6))
    result = norm.layer_norm(b, total, gamma, beta, 2, node.attr("epsilon", 1e-12))
    return [result, sum_mask(b, node)]


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(b: Builder, node: Node) -> Result:
    """An LSTM of quantized weights, [directions, inputs, 4 * hidden] each, by one scale a direction
    or a column; inputs and the states of each step are quantized by their own range.
    """
    b.quantized = True
    weights = [_lstm_weights(b, node, index, scale) for index, scale in ((1, 8), (2, 10))]
    return recurrent.quantized_lstm(b, node, weights)


def _lstm_weights(b: Builder, node: Node, index: int, scale: int) -> QuantizedWeights:
    """Int8 [directions, 4 * hidden, inputs], in the order of LSTM."""
    integers, zero = layout.transpose(b, node.value(index), [0, 2, 1]), node.optional(scale + 1)
    integers, zero = integer.as_int8(b, integers, zero)
    return QuantizedWeights(integers, node.value(scale), zero)
