"""Matmuls by constant matrices of 4- or 8-bit numbers, which have a scale and a zero point for each
block of the depth, and of float16.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.ir.prim import expr as prim

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices, wrap
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex

KERNEL_NAMES = {
    (4, False): "nbits_product",
    (8, False): "bytes_product",
    (4, True): "rounded_nbits_product",
    (8, True): "rounded_bytes_product",
    (16, False): "halves_product",
}
"""Names of the programs of matmuls, by bits of a number and by whether the left side is rounded
to 8 bits; of arguments x, numbers, scales unless they are float16 and, where they differ, zero
points.
"""
CODES = "codes_product"
"""The name of the program of matmuls by 4-bit codes of a codebook; of arguments x, codes, scales
and the codebook.
"""
ROWS = {4: "nbits_rows", 8: "bytes_rows", 16: "halves_rows"}
"""Names of the programs that read rows of a table, of arguments indices, numbers and what else the
matmuls' have.
"""
HALF = 16
"""Bits of a number that is a float16."""
_BIAS = 2.0**112
"""Between the exponents of float32 and float16: by it, the bits of a float16 in the place of those
of a float32 become the same number.
"""


@dataclass(frozen=True)
class Blocks:
    """A matrix [columns, depth], of which `block` numbers along the depth share a scale.

    numbers: uint8 [columns, blocks, bytes of a block], the first number in the lowest bits; scales:
    float32 [columns, blocks]; zeros: uint8 or float32 [columns, blocks], None where each is half of
    the range. Of float16 the numbers are their bits, uint16 [columns, 1, depth], without scales.

    codebook: float32 [16], the reals that 4-bit numbers stand for before their scale; None where
    they stand for themselves.
    """

    bits: int
    block: int
    depth: int
    numbers: np.ndarray[Any, Any]
    scales: np.ndarray[Any, Any] | None
    zeros: np.ndarray[Any, Any] | None
    codebook: np.ndarray[Any, Any] | None = None

    @property
    def tensors(self) -> list[Known]:
        """The inputs of the program beside x."""
        arrays = (self.numbers, self.scales, self.zeros, self.codebook)
        return [Known.of(np.ascontiguousarray(array)) for array in arrays if array is not None]


def dequantize(table: Blocks) -> np.ndarray[Any, Any]:
    """float32 [columns, depth]."""
    if table.scales is None:
        return table.numbers[:, 0].view(np.float16).astype(np.float32)
    shifts = np.arange(0, 8, table.bits, dtype=np.uint8)
    mask = np.uint8((1 << table.bits) - 1)
    numbers = (table.numbers[..., None] >> shifts & mask).reshape(*table.scales.shape, -1)
    if table.codebook is not None:
        real = table.codebook[numbers] * table.scales[..., None]
        return np.ascontiguousarray(real.reshape(len(real), -1)[:, : table.depth])
    zeros: Any = 1 << (table.bits - 1) if table.zeros is None else table.zeros[..., None]
    apart = numbers[..., : table.block].astype(np.float32) - np.float32(zeros)
    real = apart * table.scales[..., None]
    return np.ascontiguousarray(real.reshape(len(real), -1)[:, : table.depth])


def matmul(b: Builder, x: Value, table: Blocks, quantizes: bool) -> Value:
    """x [.., depth] times the transpose of the matrix, in x's dtype; summed up in float32.

    quantizes: kernels for processors quantize x to 8 bits, block by block.
    """
    b.same(x.shape[-1], table.depth, f"the matrix has a depth of {table.depth}")
    wide = ew.cast(b, x, "float32")
    program = matmul_program(table, list(map(ex.prim, x.shape[:-1])))
    name = CODES if table.codebook is not None else KERNEL_NAMES[table.bits, quantizes]
    # As fusion treats a matmul: what is elementwise may follow.
    result = b.te(program, wide, *table.tensors, name=name, attrs={"op_pattern": 4})
    return ew.cast(b, result, x.dtype)


def matmul_program(table: Blocks, rows: Sequence[Any]) -> Callable[..., te.Tensor]:
    """A program of [*rows, depth] and the table's tensors: the matmul with its transpose."""

    def compute(data: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((ex.prim(0), ex.prim(table.depth)), name="k")
        return te.compute(
            [*rows, ex.prim(len(table.numbers))],
            lambda *i: te.sum(data(*i[:-1], k) * real_at(table, tensors, i[-1], k), axis=[k]),
            name="product",
        )

    return compute


def rows(b: Builder, positions: Indices, table: Blocks) -> Value:
    """float32 [*positions, depth]: rows of the matrix at the positions."""
    program = rows_program(table, list(map(ex.prim, positions.shape)))
    return b.te(program, positions.value, *table.tensors, name=ROWS[table.bits])


def rows_program(table: Blocks, shape: Sequence[Any]) -> Callable[..., te.Tensor]:
    """A program of indices [*shape] and the table's tensors: its rows at the indices."""

    def compute(index: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            row = wrap(index(*i[:-1]), len(table.numbers))
            return real_at(table, tensors, row, i[-1])

        return te.compute([*shape, ex.prim(table.depth)], element, name="rows")

    return compute


def real_at(table: Blocks, tensors: tuple[te.Tensor, ...], column: Any, k: Any) -> Any:
    """The number at [column, k] as float32."""
    if table.bits == HALF:
        return real_of_half(tensors[0](column, 0, k))
    block, each = tirx.floordiv(k, table.block), 8 // table.bits
    byte = tensors[0](column, block, tirx.floordiv(tirx.floormod(k, table.block), each))
    shift = (tirx.floormod(k, each) * table.bits).astype("int32")
    number = (byte.astype("int32") >> shift) & ((1 << table.bits) - 1)
    if table.codebook is not None:
        return tensors[2](number) * tensors[1](column, block)
    zero: Any = tirx.const(1 << (table.bits - 1), "float32")
    if table.zeros is not None:
        zero = tensors[2](column, block).astype("float32")
    return (number.astype("float32") - zero) * tensors[1](column, block)


def real_of_half(bits: Any, lanes: int = 1) -> Any:
    """The float16 of those bits, uint16 in so many lanes, as float32; without an instruction for
    it. Infinities and NaN are not meant.
    """

    def spread(value: int | float, dtype: str) -> Any:
        number = tirx.const(value, dtype)
        return number if lanes == 1 else prim.Broadcast(number, lanes)

    wide = bits.astype("uint32" if lanes == 1 else f"uint32x{lanes}")
    magnitude = (wide & spread(0x7FFF, "uint32")) << spread(13, "uint32")
    sign = (wide & spread(0x8000, "uint32")) << spread(16, "uint32")
    real = tirx.reinterpret("float32" if lanes == 1 else f"float32x{lanes}", magnitude | sign)
    return real * spread(_BIAS, "float32")
