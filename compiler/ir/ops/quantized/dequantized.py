"""Matmuls and convolutions of values that were dequantized, on the integers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.nn import conv as nn_conv
from compiler.ir.ops.nn.window import Window
from compiler.ir.ops.pointwise.conversion import convert
from compiler.ir.ops.quantized import block_matmul, integer
from compiler.ir.ops.quantized.block_matmul import Blocks
from compiler.ir.ops.quantized.quantize import Grid, rescale, subtract_zero
from compiler.ir.shapes.extents import Extent

LEAST = 1 << 12
"""Smaller weights are not worth a kernel of their own."""
_MULTIPLE = 8
"""The number of weights in a block is a multiple of it where one block holds a whole row."""
BYTES = ("int8", "uint8")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dequantized:
    """Integers and the grid by which a value was computed from them."""

    integers: Value
    grid: Grid

    def transpose(self) -> Dequantized | None:
        """A constant matrix the other way round; None for other values."""
        if not isinstance(self.integers, Known) or self.integers.data.ndim != 2:
            return None
        parts = [_transpose(part) for part in self.grid.parameters if isinstance(part, Known)]
        if len(parts) < len(self.grid.parameters):
            return None
        zero = parts[1] if len(parts) > 1 else None
        grid = Grid(parts[0], zero, 1 - self.grid.axis, self.grid.block)
        return Dequantized(_transpose(self.integers), grid)


def _transpose(value: Known) -> Known:
    return Known(np.ascontiguousarray(value.data.T), value.dtype)


def cast(b: Builder, x: Value, dtype: str) -> Value:
    """X in another dtype; a matmul finds the bytes of a constant matrix again."""
    result = convert(b, x, dtype)
    if isinstance(x, Known) and x.dtype in BYTES and dtype == "float32" and x.data.ndim == 2:
        b.dequantized[result] = Dequantized(x, Grid(Known.of(np.ones((), np.float32))))
    return result


def matmul(b: Builder, x: Value, weight: Value) -> Value | None:
    """x @ weight [depth, columns] where the weight is dequantized from constants: on integers where
    x is dequantized from bytes, else by blocks; None where neither serves.
    """
    right: Dequantized | None = b.dequantized.get(weight)
    if right is None or len(weight.shape) != 2 or x.dtype != "float32":
        return None
    left = _bytes_of(b, x)
    if left is not None and right.integers.dtype in BYTES and _is_per_channel(right.grid, 1):
        total = integer.matmul(b, left.integers, right.integers, left.grid.zero, right.grid.zero)
        return rescale(b, total, left.grid.scale, 0, right.grid.scale, len(total.shape) - 1)
    table = _blocks(right.integers, right.grid)
    return None if table is None else block_matmul.matmul(b, x, table, b.quantizes_blocks)


def conv(b: Builder, x: Value, weight: Value, window: Window, groups: int) -> Value | None:
    """The convolution where both sides are dequantized from bytes, on the integers; None where they
    are not.
    """
    left, right = _bytes_of(b, x), b.dequantized.get(weight)
    if left is None or right is None or right.integers.dtype not in BYTES:
        return None
    if not _is_per_channel(right.grid, 0):
        return None
    zeros = left.grid.zero, right.grid.zero
    total = integer.conv(b, left.integers, right.integers, *zeros, window, groups)
    return rescale(b, total, left.grid.scale, 0, right.grid.scale, 1)


def conv_transpose(
    b: Builder, x: Value, weight: Value, window: Window, groups: int, out: Sequence[Extent]
) -> Value | None:
    """The transposed convolution without a bias where both sides are dequantized from bytes, on
    the integers; None where they are not.
    """
    left, right = _bytes_of(b, x), b.dequantized.get(weight)
    if left is None or right is None or right.integers.dtype not in BYTES:
        return None
    if not right.grid.known or not _is_per_channel(right.grid, 1):
        return None
    if right.grid.scale.shape and groups != 1:
        return None
    b.quantized = True
    data, factors = (
        subtract_zero(b, side.integers, side.grid.zero, 1, "float32") for side in (left, right)
    )
    total = nn_conv.conv_transpose(b, data, factors, None, window, groups, out)
    return rescale(b, total, left.grid.scale, 0, right.grid.scale, 1)


def _bytes_of(b: Builder, x: Value) -> Dequantized | None:
    """The bytes that x was dequantized from by one scale."""
    result: Dequantized | None = b.dequantized.get(x)
    if result is None or result.integers.dtype not in BYTES or result.grid.scale.shape:
        return None
    return result if x.dtype == "float32" else None


def _is_per_channel(grid: Grid, axis: int) -> bool:
    """True for one scale, or one a position on `axis`."""
    return not grid.block and (not grid.scale.shape or grid.axis == axis)


def _blocks(integers: Value, grid: Grid) -> Blocks | None:
    """The transpose of a constant matrix [depth, columns] as blocks; None where no kernel has the
    depth's blocks, or where rows have scales.
    """
    if not isinstance(integers, Known) or integers.dtype not in BYTES or not grid.known:
        return None
    depth, columns = integers.shape
    if integers.data.size < LEAST or not (_is_blocked(grid) or _is_per_channel(grid, 1)):
        return None
    block = grid.block or -(-depth // _MULTIPLE) * _MULTIPLE
    shape = (-(-depth // block), columns)
    scale, zero = (_spread(part, shape) for part in (grid.scale, grid.zero))
    assert scale is not None
    bits, numbers, shift = _unsigned(integers.data.T)
    padded = np.zeros((columns, shape[0] * block), np.uint8)
    padded[:, :depth] = numbers
    packed = _pack(padded, bits).reshape(columns, shape[0], -1)
    zeros = _unsigned_zeros(np.zeros_like(scale) if zero is None else zero, shift, bits)
    return Blocks(bits, block, depth, packed, scale.astype(np.float32), zeros)


def _is_blocked(grid: Grid) -> bool:
    return grid.block > 0 and grid.axis == 0 and grid.block % 16 == 0


def _spread(part: Value | None, shape: tuple[int, int]) -> Array | None:
    """Scales or zero points [blocks, columns] as [columns, blocks]."""
    if not isinstance(part, Known):
        return None
    return np.ascontiguousarray(np.broadcast_to(part.data, shape).T)


def _unsigned(values: Array) -> tuple[int, Array, int]:
    """Bits of a number, the numbers from 0 on, and what was added to them."""
    low, high = int(values.min()), int(values.max())
    signed = values.dtype == np.int8
    bits = 4 if (low >= -8 and high < 8 if signed else high < 16) else 8
    shift = 1 << bits - 1 if signed else 0
    return bits, (values.astype(np.int16) + shift).astype(np.uint8), shift


def _unsigned_zeros(zero: Array, shift: int, bits: int) -> Array | None:
    """Zero points as the unsigned numbers have them, None where all are in the middle."""
    moved = zero.astype(np.float64) + shift
    if np.all(moved == 1 << bits - 1):
        return None
    in_range = np.all((moved >= 0) & (moved < 1 << bits) & (moved == np.rint(moved)))
    return np.asarray(moved.astype(np.uint8 if in_range else np.float32))


def _pack(numbers: Array, bits: int) -> Array:
    """Rows of numbers as bytes, of 4 bits two each, the first in the lower half."""
    return numbers if bits == 8 else np.asarray(numbers[:, ::2] | numbers[:, 1::2] << np.uint8(4))
