"""Arithmetic that quantized operators share: factors between scales, limits of fused activations,
and tables for functions of one byte. It is that of TFLite's reference kernels, to the bit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.ir.tflite.file import Tensor
from compiler.ir.tflite.fixed_point import quantize_multiplier, round_away
from compiler.ir.tflite.node import Node

Array = np.ndarray[Any, Any]


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the greatest integer of a dtype."""
    info = np.iinfo(np.dtype(dtype))
    return int(info.min), int(info.max)


def activation_limits(node: Node, output: Tensor, activation: int) -> tuple[int, int]:
    """The range that a fused activation leaves of a quantized output."""
    low, high = limits_of(output.dtype)
    scale, zero = node.scalar_grid(output)

    def integer(real: float) -> int:
        return zero + int(round_away(np.asarray(np.float32(real) / scale)))

    match activation:
        case 0:
            return low, high
        case 1:
            return max(low, integer(0)), high
        case 2:
            return max(low, integer(-1)), min(high, integer(1))
        case 3:
            return max(low, integer(0)), min(high, integer(6))
    return node.refuse_activation()


def requantize(
    node: Node,
    x: str,
    factors: Any,
    rank: int,
    *,
    axis: int = 0,
    output: Tensor | None = None,
    limits: tuple[int, int] | None = None,
    once: bool = False,
) -> str:
    """An int32 value by a factor, or by one for each position on `axis`, as `output`'s integers;
    without one as int32. once: rounded once.
    """
    pairs = [quantize_multiplier(float(factor)) for factor in np.atleast_1d(factors)]
    multipliers = np.array([multiplier for multiplier, _ in pairs], np.int32)
    exponents = np.array([exponent for _, exponent in pairs], np.int32)
    shape = [len(pairs) if position == axis else 1 for position in range(rank)]
    shape = shape if len(pairs) > 1 else []
    dtype = "int32" if output is None else output.dtype
    zero = 0 if output is None else node.scalar_grid(output)[1]
    low, high = limits or limits_of(dtype)
    return str(
        node.put(
            "RequantizeOnce" if once else "Requantize",
            x,
            node.const(multipliers.reshape(shape)),
            node.const(exponents.reshape(shape)),
            node.const(zero, dtype),
            node.const(low, "int32"),
            node.const(high, "int32"),
        )
    )


def centre(node: Node, index: int) -> str:
    """An input of quantized integers less its zero point, in int32."""
    _, zero = node.scalar_grid(node.tensor(index))
    wide = node.cast(node.x(index), "int32")
    return str(node.put("Sub", wide, node.const(zero, "int32"))) if zero else wide


def look_up(node: Node, x: str, dtype: str, table: Array) -> str:
    """A function of a byte by its 256 results, from the least byte on."""
    low, _ = limits_of(dtype)
    position = node.cast(x, "int32")
    if low:
        position = node.put("Sub", position, node.const(low, "int32"))
    return str(node.put("Gather", node.const(table), position, axis=0))


def all_bytes(node: Node, index: int = 0) -> Array:
    """Every value that an input of bytes may have, less its zero point, in int32."""
    node.require_bytes(index)
    tensor = node.tensor(index)
    low, high = limits_of(tensor.dtype)
    return np.arange(low, high + 1, dtype=np.int32) - node.scalar_grid(tensor)[1]


def table_of(node: Node, function: Callable[[Array], Array], index: int = 0) -> Array:
    """The results of a function of reals for all bytes of an input, quantized as the output is."""
    tensor, output = node.tensor(index), node.output
    scale, _ = node.scalar_grid(tensor)
    out_scale, out_zero = node.scalar_grid(output)
    inputs = scale * all_bytes(node, index).astype(np.float32)
    with np.errstate(all="ignore"):
        results = function(inputs.astype(np.float64)).astype(np.float32)
        scaled = round_away(results * (np.float32(1) / out_scale)).astype(np.float64)
    return to_output(node, np.nan_to_num(scaled, nan=-np.inf) + out_zero)


def to_output(node: Node, values: Array) -> Array:
    """Numbers as the output's integers, saturated."""
    low, high = limits_of(node.output.dtype)
    return np.clip(values, low, high).astype(node.output.dtype)
