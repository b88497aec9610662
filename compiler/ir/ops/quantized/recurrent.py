"""Quantized weights of recurrent layers, by which inputs and states are multiplied as integers."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn.recurrent import Blocks
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import integer
from compiler.ir.ops.quantized import quantize as qt
from compiler.ir.ops.shape import indexing
from compiler.ir.shapes.extents import Extent


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

    @property
    def has_zeros(self) -> bool:
        """True if a zero point is not 0."""
        return self.zero is not None

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

    def arguments(self, b: Builder, blocks: Blocks) -> list[Value]:
        """The program's inputs for r: weights, the scales of their columns, and their zero points
        where they have any.
        """
        zeros = [] if self.zero is None else [blocks.columns(ew.cast(b, self.zero, "int32"))]
        return [blocks.pack(self.integers), blocks.columns(self.scale), *zeros]


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
