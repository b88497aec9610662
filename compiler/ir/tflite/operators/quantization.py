"""Between reals and integers, and between types."""

import numpy as np

from compiler.ir.tflite.fixed_point import multiply, quantize_multiplier
from compiler.ir.tflite.node import SMALL_INTEGERS, Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import (
    all_bytes,
    centre,
    limits_of,
    look_up,
    requantize,
    to_output,
)


@op("QUANTIZE")
def quantize(node: Node) -> str:
    """Reals to integers, halves away from zero; integers to those of another scale."""
    scale, zero = node.scalar_grid(node.output)
    if node.output.dtype not in SMALL_INTEGERS:
        node.fail(f"quantization to {node.output.dtype}", reason="unsupported_dtype")
    if node.is_quantized():
        factor = np.float64(node.scalar_grid(node.tensor(0))[0]) / np.float64(scale)
        if node.tensor(0).dtype == "int16":
            return requantize(node, centre(node, 0), factor, node.rank(), output=node.output)
        scaled = multiply(all_bytes(node), *quantize_multiplier(factor)) + zero
        return look_up(node, node.x(), node.tensor(0).dtype, to_output(node, scaled))
    if node.tensor(0).dtype != "float32":
        node.fail(f"quantization of {node.tensor(0).dtype}", reason="unsupported_dtype")
    integers = node.put("RoundAway", node.put("Div", node.x(), node.const(scale)))
    low, high = limits_of(node.output.dtype)
    # Clipped before the zero point is added: beyond 2**24 floats have no ones.
    within = node.clip(integers, low - zero, high - zero)
    moved = node.put("Add", within, node.const(zero, "float32"))
    return node.cast(moved, node.output.dtype)


@op("DEQUANTIZE")
def dequantize(node: Node) -> str:
    """Integers to reals; float16 to float32."""
    tensor = node.tensor(0)
    if tensor.dtype == "float16":
        data = node.find_constant(0)
        return node.cast(node.x(), "float32") if data is None else node.fold(data.astype("float32"))
    if tensor.dtype not in (*SMALL_INTEGERS, "int32", "int4"):
        node.fail(f"dequantization of {tensor.dtype}", reason="unsupported_dtype")
    grid = node.grid(tensor)
    shape = [1] * len(tensor.shape)
    if not grid.by_tensor:
        shape[grid.axis] = -1
    scale, zero = grid.scale.reshape(shape), grid.zero.reshape(shape)
    if (data := node.find_constant(0)) is not None:
        return node.fold((data.astype("int64") - zero).astype("float32") * scale)
    wide = node.put("Sub", node.cast(node.x(), "int32"), node.const(zero, "int32"))
    return str(node.put("Mul", node.cast(wide, "float32"), node.const(scale)))


@op("DENSIFY")
def densify(node: Node) -> str:
    """A sparse constant, which is read as a dense one."""
    return node.fold(node.constant(0, "the sparse tensor"))


@op("CAST")
def cast(node: Node) -> str:
    """Another element type."""
    for tensor in (node.tensor(0), node.output):
        try:
            np.dtype(tensor.dtype)
        except TypeError:
            node.fail(f"a cast of {tensor.dtype}", reason="unsupported_dtype")
    return node.cast(node.x(), node.output.dtype)
