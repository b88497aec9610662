"""Block-wise quantized matrices, in the form of MatMulNBits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Quantized:
    """A matrix [rows, depth] as MatMulNBits has it: numbers uint8 [rows, blocks, bytes], the first
    in the lowest bits; scales float32 [rows, blocks]; zeros float32 or, where all are whole, uint8
    [rows, blocks], None where each is half of the range.
    """

    bits: int
    shape: tuple[int, int]
    numbers: Array
    scales: Array
    zeros: Array | None

    @property
    def block(self) -> int:
        """Numbers that share a scale."""
        return self.shape[1] // self.scales.shape[1]

    def part(self, first: int, count: int) -> "Quantized":
        """Some of its rows."""
        own = slice(first, first + count)
        zeros = None if self.zeros is None else self.zeros[own]
        shape = (count, self.shape[1])
        return Quantized(self.bits, shape, self.numbers[own], self.scales[own], zeros)

    @classmethod
    def stack(cls, tables: "Sequence[Quantized]") -> "Quantized | None":
        """The rows of the tables one below the other, None where these have different forms."""
        if len({table._form for table in tables}) > 1:
            return None
        first = tables[0]
        zeros = [table.zeros for table in tables if table.zeros is not None]
        return cls(
            first.bits,
            (sum(table.shape[0] for table in tables), first.shape[1]),
            np.concatenate([table.numbers for table in tables]),
            np.concatenate([table.scales for table in tables]),
            np.concatenate(zeros) if zeros else None,
        )

    @property
    def _form(self) -> tuple[object, ...]:
        """The properties that tables share whose rows one matmul multiplies."""
        zeros = None if self.zeros is None else self.zeros.dtype
        return self.bits, self.shape[1], self.block, self.scales.dtype, zeros


def pack(bits: int, numbers: Array) -> Array:
    """Two numbers of four bits a byte, the first in the lower half."""
    if bits == 8:
        return numbers
    return np.asarray(numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4))


def dequantize(tensor: Array | Quantized) -> Array:
    """The matrix in float32."""
    if not isinstance(tensor, Quantized):
        return tensor
    numbers = tensor.numbers
    if tensor.bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], -1).reshape(*numbers.shape[:-1], -1)
    zeros = 1 << (tensor.bits - 1) if tensor.zeros is None else tensor.zeros[..., None]
    apart = numbers.astype(np.float32) - np.float32(zeros)
    return np.asarray((apart * tensor.scales[..., None]).reshape(tensor.shape))
