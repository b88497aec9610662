"""Matmuls by constant matrices of 4- or 8-bit numbers, which have a scale and a zero point for each
block of the depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import indexing
from compiler.ir.values import Known, Value

PRODUCTS = {
    (4, False): "nbits_product",
    (8, False): "bytes_product",
    (4, True): "rounded_nbits_product",
    (8, True): "rounded_bytes_product",
}
"""Names of the programs of matmuls, by bits of a number and by whether the left side may be rounded
to 8 bits; of arguments x, numbers, scales and, where they differ, zero points.
"""
ROWS = {4: "nbits_rows", 8: "bytes_rows"}
"""Names of the programs that read rows of a table, of arguments indices, numbers, scales and, where
they differ, zero points.
"""


@dataclass(frozen=True)
class Blocks:
    """A matrix [columns, depth], of which `block` numbers along the depth share a scale.

    numbers: uint8 [columns, blocks, bytes of a block], the first number in the lowest bits; scales:
    float32 [columns, blocks]; zeros: uint8 or float32 [columns, blocks], None where each is half of
    the range.
    """

    bits: int
    block: int
    depth: int
    numbers: np.ndarray[Any, Any]
    scales: np.ndarray[Any, Any]
    zeros: np.ndarray[Any, Any] | None

    @property
    def tensors(self) -> list[Known]:
        """What the program takes beside x."""
        held = [self.numbers, self.scales, *([] if self.zeros is None else [self.zeros])]
        return [Known.of(np.ascontiguousarray(array)) for array in held]


def reals(table: Blocks) -> np.ndarray[Any, Any]:
    """float32 [columns, depth]."""
    shifts = np.arange(0, 8, table.bits, dtype=np.uint8)
    mask = np.uint8((1 << table.bits) - 1)
    numbers = (table.numbers[..., None] >> shifts & mask).reshape(*table.scales.shape, -1)
    zeros: Any = 1 << (table.bits - 1) if table.zeros is None else table.zeros[..., None]
    apart = numbers[..., : table.block].astype(np.float32) - np.float32(zeros)
    real = apart * table.scales[..., None]
    return np.ascontiguousarray(real.reshape(len(real), -1)[:, : table.depth])


def product(b: Builder, x: Value, table: Blocks, rounded: bool) -> Value:
    """x [.., depth] times the transpose of the matrix, in x's dtype; summed up in float32.

    rounded: whether kernels may round x to 8 bits, block by block.
    """
    b.same(x.shape[-1], table.depth, f"the matrix has a depth of {table.depth}")
    wide = ew.cast(b, x, "float32")
    columns = len(table.numbers)

    def compute(data: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((ex.prim(0), ex.prim(table.depth)), name="k")
        shape = [*map(ex.prim, x.shape[:-1]), ex.prim(columns)]
        return te.compute(
            shape,
            lambda *at: te.sum(data(*at[:-1], k) * real_at(table, tensors, at[-1], k), axis=[k]),
            name="product",
        )

    name = PRODUCTS[table.bits, rounded]
    # As fusion treats a matmul: what is elementwise may follow.
    result = b.te(compute, wide, *table.tensors, name=name, attrs={"op_pattern": 4})
    return ew.cast(b, result, x.dtype)


def rows(b: Builder, indices: Value, table: Blocks) -> Value:
    """float32 [*indices, depth]: rows of the matrix at integer indices, negative ones from the end;
    none is checked.
    """
    shape = [*map(ex.prim, indices.shape), ex.prim(table.depth)]

    def compute(index: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def at(*place: Any) -> Any:
            row = indexing.wrap(index(*place[:-1]), len(table.numbers))
            return real_at(table, tensors, row, place[-1])

        return te.compute(shape, at, name="rows")

    return b.te(compute, indices, *table.tensors, name=ROWS[table.bits])


def real_at(table: Blocks, tensors: tuple[te.Tensor, ...], column: Any, k: Any) -> Any:
    """The number at [column, k] as float32."""
    block, each = tirx.floordiv(k, table.block), 8 // table.bits
    byte = tensors[0](column, block, tirx.floordiv(tirx.floormod(k, table.block), each))
    shift = (tirx.floormod(k, each) * table.bits).astype("int32")
    number = (byte.astype("int32") >> shift) & ((1 << table.bits) - 1)
    zero: Any = tirx.const(1 << (table.bits - 1), "float32")
    if table.zeros is not None:
        zero = tensors[2](column, block).astype("float32")
    return (number.astype("float32") - zero) * tensors[1](column, block)
