"""Tensors of GGUF files: floats, and blocks of 32 numbers of few bits, whose numbers stay as they
are.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from compiler.errors import LoadError
from compiler.ir.gguf.file import Stored

Array: TypeAlias = np.ndarray[Any, Any]
BLOCK = 32
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
_FLOATS = {F32: "<f4", F16: "<f2"}
_BYTES = {Q4_0: 18, Q4_1: 20, Q8_0: 34}
"""Of a block."""


@dataclass(frozen=True)
class Quantized:
    """A matrix [rows, depth] as MatMulNBits has it: numbers uint8 [rows, blocks, bytes], the first
    in the lowest bits; scales and zeros float32 [rows, blocks], zeros None where each is half of
    the range.
    """

    bits: int
    shape: tuple[int, int]
    numbers: Array
    scales: Array
    zeros: Array | None


def tensor_of(name: str, stored: Stored) -> Array | Quantized:
    """float32, or a matrix of few bits; raises LoadError."""
    count = int(np.prod(stored.shape, dtype=object))
    if stored.kind in _FLOATS:
        floats = _bytes(name, stored, count * np.dtype(_FLOATS[stored.kind]).itemsize)
        return floats.view(_FLOATS[stored.kind]).astype(np.float32).reshape(stored.shape)
    if stored.kind not in _BYTES or len(stored.shape) != 2 or stored.shape[1] % BLOCK:
        raise LoadError(
            f"the tensor {name!r} has the format {stored.kind}, which is not supported",
            reason="gguf_format",
            field="model",
            hint="convert it with llama-quantize to Q4_0, Q4_1, Q8_0, F16 or F32",
        )
    rows, depth = stored.shape
    blocks = depth // BLOCK
    held = _bytes(name, stored, rows * blocks * _BYTES[stored.kind])
    return _quantized(stored.kind, (rows, depth), held.reshape(rows, blocks, -1))


def _bytes(name: str, stored: Stored, size: int) -> Array:
    if size > len(stored.data):
        raise LoadError(
            f"the tensor {name!r} is longer than the file", reason="truncated", field="model"
        )
    return np.array(stored.data[:size])


def _quantized(kind: int, shape: tuple[int, int], held: Array) -> Quantized:
    scales = _halves(held, 0)
    if kind == Q8_0:
        # Signed numbers become those around 128.
        return Quantized(8, shape, held[..., 2:] ^ np.uint8(128), scales, None)
    if kind == Q4_0:
        return Quantized(4, shape, _neighbours(held[..., 2:]), scales, None)
    # number * scale + least is (number - zero) * scale; a block of one value has no scale.
    least, numbers = _halves(held, 2), _neighbours(held[..., 4:])
    flat = scales == 0
    zeros = np.where(flat, np.float32(-1), -least / np.where(flat, np.float32(1), scales))
    numbers[flat] = 0
    return Quantized(4, shape, numbers, np.where(flat, least, scales), zeros)


def _halves(held: Array, at: int) -> Array:
    """The float16 at a place of every block, as float32."""
    return np.ascontiguousarray(held[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _neighbours(held: Array) -> Array:
    """Bytes of two neighbours each, of bytes that hold number i and number i + 16."""
    numbers = np.concatenate([held & 15, held >> 4], -1)
    return np.asarray(numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4))


def reals(tensor: Array | Quantized) -> Array:
    """float32."""
    if not isinstance(tensor, Quantized):
        return tensor
    numbers = tensor.numbers
    if tensor.bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], -1).reshape(*numbers.shape[:-1], -1)
    zeros = 1 << (tensor.bits - 1) if tensor.zeros is None else tensor.zeros[..., None]
    apart = numbers.astype(np.float32) - np.float32(zeros)
    return np.asarray((apart * tensor.scales[..., None]).reshape(tensor.shape))
