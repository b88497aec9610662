"""Quantized weights of recurrent layers, by which inputs and states are multiplied as integers, or
as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn.recurrent import Blocks
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import dequantized, integer
from compiler.ir.ops.quantized import quantize as qt
from compiler.ir.ops.quantized.dequantized import BYTES, LEAST, Dequantized
from compiler.ir.ops.quantized.quantize import Grid
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.recurrences.layer import LANES, Integers, Stored

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class QuantizedWeights:
    """Weights as int8 [G*H, C]: `scale` times (the integer less `zero`, None for 0), each one
    number or one for each row.

    What they multiply is quantized to uint8: the input by its range, and the states of all rows by
    theirs at each step.
    """

    integers: Value
    scale: Value
    zero: Value | None

    @property
    def shape(self) -> tuple[Extent, ...]:
        """[G*H, C]."""
        return tuple(self.integers.shape)

    def form(self, ended: bool) -> Integers:
        """The program's form: states are quantized at each step."""
        return Integers(self.zero is not None, ended)

    def of_direction(self, b: Builder, index: int) -> QuantizedWeights:
        """One direction of weights that have an axis of directions before the others."""
        zero = None if self.zero is None else indexing.item(b, self.zero, 0, index)
        integers, scale = (indexing.item(b, v, 0, index) for v in (self.integers, self.scale))
        return QuantizedWeights(integers, scale, zero)

    def project(self, b: Builder, blocks: Blocks, x: Value, lengths: Value | None) -> Value:
        """The input's part of the sums, x [S, B, I] times w, without biases."""
        integers, scale, zero = qt.dynamic(b, _mask_past_all(b, x, lengths))
        own_zero = None if self.zero is None else blocks.columns(self.zero)
        total = integer.matmul(b, integers, blocks.flat(self.integers), zero, own_zero)
        return qt.rescale(b, total, scale, 0, blocks.columns(self.scale), 2)

    def arguments(self, b: Builder, blocks: Blocks) -> list[tuple[Value, Sequence[Extent]]]:
        """The program's inputs for r: weights, the scales of their columns, and their zero points
        where they have any.
        """
        hidden, rows = blocks.hidden, ex.mul(blocks.units, blocks.gates)
        zeros = [] if self.zero is None else [blocks.columns(ew.cast(b, self.zero, "int32"))]
        columns = [blocks.columns(self.scale), *zeros]
        weights = blocks.pack(self.integers), [blocks.count, blocks.gates, hidden, LANES]
        return [weights, *((value, [rows]) for value in columns)]


@dataclass(frozen=True)
class DequantizedWeights:
    """Constants that a model dequantizes: `scale` times (the integer [G*H, C] less `zero`, None for
    0), of which there is one a row and block of columns, [G*H, blocks]. What they multiply stays
    float32, but for an input that was itself dequantized from bytes.

    block: columns of a block, 0 where a row has one scale.
    """

    integers: Known
    scale: Known
    zero: Known | None
    block: int

    @classmethod
    def of(cls, value: Dequantized | None, index: int) -> DequantizedWeights | None:
        """One direction of weights [D, G*H, C]; None for values that were not computed from such
        constants, and for scales that are those of columns.
        """
        if value is None or value.integers.dtype not in BYTES or len(value.integers.shape) != 3:
            return None
        if not isinstance(value.integers, Known) or not value.grid.known:
            return None
        parts = [_by_row(value.integers, value.grid, part) for part in value.grid.parameters]
        known = [Known.of(part[index]) for part in parts if part is not None]
        integers = value.integers.data[index]
        if len(known) < len(parts) or integers.size < LEAST or value.grid.block % 2:
            return None
        scale, zero = [*known, None][:2]
        assert scale is not None
        as_float = Known.of(scale.data, "float32")
        return cls(Known.of(integers), as_float, zero, value.grid.block)

    @property
    def shape(self) -> tuple[Extent, ...]:
        """[G*H, C]."""
        return self.integers.shape

    def form(self, ended: bool) -> Stored:
        """The program's form: states are not quantized."""
        _, zeros, bits = self._as_stored()
        return Stored(bits, self.block or None, zeros is not None)

    def project(self, b: Builder, blocks: Blocks, x: Value, lengths: Value | None) -> Value:
        """The input's part of the sums, x [S, B, I] times w, without biases."""
        scale, zero, integers = (
            None if part is None else blocks.flat(part)
            for part in (self.scale, self.zero, self.integers)
        )
        assert scale is not None
        assert integers is not None
        grid = Grid(scale, zero, 0, self.block)
        if not self.block:
            zero = None if zero is None else layout.squeeze(b, zero, [0])
            grid = Grid(layout.squeeze(b, scale, [0]), zero, 1)
        weight = qt.dequantize(b, integers, grid)
        b.dequantized[weight] = Dequantized(integers, grid)
        return dequantized.matmul(b, x, weight) or linear.matmul(b, x, weight)

    def arguments(self, b: Builder, blocks: Blocks) -> list[tuple[Value, Sequence[Extent]]]:
        """The program's inputs for r: weights, scales, and zero points where they are not the
        middle of the range.
        """
        integers, zeros, bits = self._as_stored()
        packed = blocks.pack(Known.of(integers))
        assert isinstance(packed, Known)
        values: list[Value] = [Known.of(_pack(packed.data, bits)), blocks.flat(self.scale)]
        if zeros is not None:
            values.append(blocks.flat(Known.of(zeros)))
        return [(value, value.shape) for value in values]

    def _as_stored(self) -> tuple[Array, Array | None, int]:
        """Integers as the program has them, their zero points int8, None where all are in the
        middle of the range, and the bits of an integer.
        """
        integers = self.integers.data.astype(np.int16)
        zero = np.zeros(self.scale.shape, np.int16) if self.zero is None else self.zero.data
        signed, zero = self.integers.dtype == "int8", zero.astype(np.int16)
        few = [part + (8 if signed else 0) for part in (integers, zero)]
        if all(part.min() >= 0 and part.max() < 16 for part in few):
            values, zeros, bits = few[0].astype(np.uint8), few[1], 4
        else:
            shift = 0 if signed else -128
            values, zeros, bits = (integers + shift).astype(np.int8), zero + shift, 8
        middle = np.all(zeros == (8 if bits == 4 else 0))
        return values, None if middle else zeros.astype(np.int8), bits


def _by_row(integers: Known, grid: Grid, part: Value) -> Array | None:
    """Scales or zero points of [D, G*H, C] as [D, G*H, blocks]; None where they are of columns."""
    assert isinstance(part, Known)
    data, axis = part.data, layout.axis_of(grid.axis, 3)
    if grid.block:
        return data if axis == 2 else None
    if data.ndim < 3:
        data = data.reshape([-1 if d == axis and data.size > 1 else 1 for d in range(3)])
    return np.broadcast_to(data, (*integers.shape[:2], 1)) if data.shape[2] == 1 else None


def _pack(numbers: Array, bits: int) -> Array:
    """[K, G, H, LANES] as bytes: of 4 bits those of two units in one, the first in its lower
    half.
    """
    if bits == 8:
        return numbers
    even = np.pad(numbers, [(0, 0), (0, 0), (0, numbers.shape[2] % 2), (0, 0)])
    return np.asarray(even[:, :, ::2] | even[:, :, 1::2] << np.uint8(4))


def _mask_past_all(b: Builder, x: Value, lengths: Value | None) -> Value:
    """x [S, B, I] with zeros in the steps that no row has: they count for no range."""
    if lengths is None:
        return x
    most = rd.reduce(b, ew.cast(b, lengths, "int64"), "max", [0], False)

    def mask(data: te.Tensor, limit: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, data.dtype)
        return te.compute(
            data.shape, lambda s, n, i: tirx.Select(s < limit(), data(s, n, i), zero), name="mask"
        )

    return b.te(mask, x, most, name="mask_steps")
