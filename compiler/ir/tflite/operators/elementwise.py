"""Functions of one tensor, element by element: of quantized bytes, tables of 256 results."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.ir.tflite.fixed_point import divide_by_power, multiply, quantize_multiplier
from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import (
    activation_limits,
    all_bytes,
    centre,
    look_up,
    requantize,
    table_of,
    to_output,
)

Array = np.ndarray[Any, Any]

_FUNCTIONS: dict[str, tuple[str, Callable[[Array], Array] | None]] = {
    "LOGISTIC": ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "TANH": ("Tanh", np.tanh),
    "EXP": ("Exp", np.exp),
    "LOG": ("Log", np.log),
    "SIN": ("Sin", np.sin),
    "COS": ("Cos", np.cos),
    "SQRT": ("Sqrt", np.sqrt),
    "ELU": ("Elu", lambda x: np.where(x < 0, np.expm1(x), x)),
    "FLOOR": ("Floor", None),
    "CEIL": ("Ceil", None),
    "ROUND": ("Round", None),
    "NEG": ("Neg", None),
    "SIGN": ("Sign", None),
}
"""The ONNX operator, and the function by which TFLite fills tables; None where it has none."""


@op(*_FUNCTIONS)
def function(node: Node) -> str:
    """A function of reals, by a table for bytes."""
    operator, real = _FUNCTIONS[node.operator.name]
    if not node.is_quantized():
        return str(node.put(operator, node.x()))
    if real is None:
        node.fail("it is not supported on quantized integers", reason="unsupported_dtype")
    assert real is not None
    return _by_table(node, table_of(node, real))


def _by_table(node: Node, table: Array) -> str:
    return look_up(node, node.x(), node.tensor(0).dtype, table)


@op("ABS")
def absolute(node: Node) -> str:
    """Magnitudes."""
    if not node.is_quantized():
        return str(node.put("Abs", node.x()))
    return _by_table(node, _rescaled(node, np.abs(all_bytes(node))))


@op("RSQRT")
def reciprocal_root(node: Node) -> str:
    """1 / sqrt(x)."""
    if node.is_quantized():
        node.fail("RSQRT of integers is not supported", reason="unsupported_dtype")
    return str(node.put("Div", node.const(1, "float32"), node.put("Sqrt", node.x())))


@op("SQUARE")
def square(node: Node) -> str:
    """x * x."""
    return str(node.put("Mul", node.x(), node.x()))


@op("GELU")
def gelu(node: Node) -> str:
    """The Gaussian error linear unit."""
    approximate = node.option("approximate")
    if not node.is_quantized():
        return str(node.put("Gelu", node.x(), approximate="tanh" if approximate else "none"))
    return _by_table(node, table_of(node, _gelu_tanh if approximate else _gelu))


def _gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf)
    return np.asarray(0.5 * x * (1 + erf(x * math.sqrt(0.5))))


def _gelu_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


@op("ZEROS_LIKE")
def zeros_like(node: Node) -> str:
    """Zeros of the input's shape."""
    zero = node.const(0, node.tensor(0).dtype)
    return str(node.put("Expand", zero, node.put("Shape", node.x())))


_CLAMPS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
"""The fused activation of the same name."""


@op(*_CLAMPS)
def clamp(node: Node) -> str:
    """Activations that clamp; bytes are brought to the output's scale."""
    kind = _CLAMPS[node.operator.name]
    if not node.is_quantized():
        low, high = {1: (0, 0), 2: (-1, 1), 3: (0, 6)}[kind]
        return str(node.put("Relu", node.x())) if kind == 1 else node.clip(node.x(), low, high)
    table = _rescaled(node, all_bytes(node))
    return _by_table(node, table.clip(*activation_limits(node, node.output, kind)))


def _rescaled(node: Node, centred: Array) -> Array:
    """Bytes less their zero point, brought to the output's scale and zero point."""
    scale, _ = node.scalar_grid(node.tensor(0))
    out, zero = node.scalar_grid(node.output)
    factor = np.float64(scale) / np.float64(out)
    return to_output(node, multiply(centred, *quantize_multiplier(factor)) + zero)


@op("RELU_0_TO_1")
def relu_0_to_1(node: Node) -> str:
    """Within 0 and 1."""
    if node.is_quantized():
        node.fail("RELU_0_TO_1 of integers is not supported", reason="unsupported_dtype")
    return node.clip(node.x(), 0, 1)


@op("LEAKY_RELU")
def leaky_relu(node: Node) -> str:
    """Negative elements by `alpha`."""
    alpha = node.option("alpha")
    if not node.is_quantized():
        return str(node.put("LeakyRelu", node.x(), alpha=float(alpha)))
    scale, _ = node.scalar_grid(node.tensor(0))
    out, zero = node.scalar_grid(node.output)
    x = all_bytes(node)
    below = quantize_multiplier(float(scale * np.float32(alpha) / out))
    above = quantize_multiplier(float(scale / out))
    scaled = np.where(x >= 0, multiply(x, *above), multiply(x, *below))
    return _by_table(node, to_output(node, scaled + zero))


@op("PRELU")
def prelu(node: Node) -> str:
    """Negative elements by a factor of their own."""
    if not node.is_quantized():
        return str(node.put("PRelu", node.x(), node.x(1)))
    node.require_bytes(0, 1)
    scale, alpha = (node.scalar_grid(node.tensor(index))[0] for index in (0, 1))
    out, _ = node.scalar_grid(node.output)
    rank, x = node.rank(), centre(node, 0)
    negative = node.put("Mul", x, centre(node, 1))
    sides = [
        requantize(node, value, factor, rank, output=node.output)
        for value, factor in ((x, float(scale / out)), (negative, float(scale * alpha / out)))
    ]
    positive = node.put("GreaterOrEqual", x, node.const(0, "int32"))
    return str(node.put("Where", positive, *sides))


@op("HARD_SWISH")
def hard_swish(node: Node) -> str:
    """x * min(max(x + 3, 0), 6) / 6; of bytes in the 16-bit arithmetic of the reference kernel."""
    if not node.is_quantized():
        return str(node.put("HardSwish", node.x()))
    scale, _ = node.scalar_grid(node.tensor(0))
    out, zero = node.scalar_grid(node.output)
    high_scale = np.float32(1) / np.float32(128) * scale
    to_out, out_exponent = _in_16_bits(float(high_scale / out))
    to_gate, gate_exponent = _in_16_bits(float(high_scale / np.float32(3) * 32768))
    x = all_bytes(node).astype(np.int64) << 7
    before = _multiply_high(x, to_out)
    gate = x
    if gate_exponent > 0:
        gate = _saturate(gate << (gate_exponent - 1))
    gate = _multiply_high(gate, to_gate)
    if gate_exponent > 0:
        gate = _saturate(gate << 1)
    if gate_exponent < 0:
        gate = divide_by_power(gate, -gate_exponent)
    gate = (gate + (1 << 15)) >> 1
    result = (gate * before) >> 15
    if out_exponent > 0:
        node.fail(f"its output's scale {out} is too small for its input's", reason="scales")
    result = divide_by_power(result, -out_exponent)
    return _by_table(node, to_output(node, result + zero))


def _in_16_bits(factor: float) -> tuple[int, int]:
    """A multiplier of 15 bits and the exponent."""
    multiplier, exponent = quantize_multiplier(factor)
    return min((multiplier + (1 << 15)) >> 16, 32767), exponent


def _multiply_high(x: Array, multiplier: int) -> Array:
    """The upper half of twice a product of 16-bit integers, rounded halves up."""
    return (x * multiplier + (1 << 14)) >> 15


def _saturate(x: Array) -> Array:
    return x.clip(-32768, 32767)
