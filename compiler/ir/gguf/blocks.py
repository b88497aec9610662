"""Tensors of GGUF files: floats, and block-wise quantized numbers, which stay as they are."""

import numpy as np

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array, Quantized, pack
from compiler.ir.gguf.file import Stored
from compiler.ir.gguf.formats import FORMATS, Parts

F32, F16, BF16 = 0, 1, 30
_FLOATS = {F32: "<f4", F16: "<f2", BF16: "<u2"}


def tensor_of(name: str, stored: Stored) -> Array | Quantized:
    """float32, or a block-wise quantized matrix; raises LoadError."""
    count = int(np.prod(stored.shape, dtype=object))
    if stored.kind in _FLOATS:
        form = np.dtype(_FLOATS[stored.kind])
        floats = _bytes(name, stored, count * form.itemsize).view(form).reshape(stored.shape)
        if stored.kind == BF16:
            # The upper half of a float32's bits.
            return (floats.astype(np.uint32) << 16).view(np.float32)
        return floats.astype(np.float32)
    blocks = FORMATS.get(stored.kind)
    if blocks is None or len(stored.shape) != 2 or stored.shape[1] % blocks.count:
        raise LoadError(
            f"the tensor {name!r} has the format {stored.kind}, which is not supported",
            reason="gguf_format",
            field="model",
            hint="convert it with llama-quantize to Q4_0, Q4_1, Q4_K_M, Q5_K_M, Q6_K, Q8_0, F16 "
            "or F32",
        )
    rows, depth = stored.shape
    groups = depth // blocks.count
    content = _bytes(name, stored, rows * groups * blocks.size)
    parts = blocks.read(content.reshape(rows, groups, blocks.size))
    if parts.bits == 8 and parts.least is not None:
        # ONNX Runtime, which verifies builds, has no such blocks.
        values = parts.numbers * parts.scales[..., None] + parts.least[..., None]
        return np.asarray(values.reshape(stored.shape))
    return _quantized((rows, depth), parts)


def _bytes(name: str, stored: Stored, size: int) -> Array:
    if size > len(stored.data):
        raise LoadError(
            f"the tensor {name!r} is longer than the file", reason="truncated", field="model"
        )
    return np.array(stored.data[:size])


def _quantized(shape: tuple[int, int], parts: Parts) -> Quantized:
    rows = shape[0]
    numbers = parts.numbers.reshape(rows, -1, parts.numbers.shape[-1])
    scales = parts.scales.reshape(rows, -1)
    if parts.least is None:
        return Quantized(parts.bits, shape, pack(parts.bits, numbers), scales, None)
    # number * scale + least is (number - zero) * scale; a block of one value has no scale.
    least, flat = parts.least.reshape(rows, -1), scales == 0
    zeros = np.where(flat, np.float32(-1), -least / np.where(flat, np.float32(1), scales))
    numbers[flat] = 0
    scales = np.where(flat, least, scales)
    return Quantized(parts.bits, shape, pack(parts.bits, numbers), scales, zeros)
