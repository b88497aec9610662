"""Quantizes matrices of floats to small integers, of which a block along the depth shares a scale,
and casts them to narrower floats.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.ir.ops.quantized.block_matmul import HALF, Blocks, dequantize
from compiler.ir.weights import WeightQuantization
from relaxd.contract.options import WeightForm

BLOCK = 32
BITS = {WeightForm.INT4: 4, WeightForm.INT8: 8, WeightForm.FLOAT16: HALF}
_LEAST_SCALE = np.float32(1e-30)
"""The inverse of a smaller one may be infinite."""
_AT_ONCE = 1 << 18
"""Numbers that are rounded together, so that what lies between the steps stays in cache."""
Array = np.ndarray[Any, Any]


def quantize_table(table: Array, bits: int) -> Blocks:
    """A float32 matrix [columns, depth] in blocks of integers around the middle of their range, or
    as float16.

    Each number goes to the nearest integer, by the better of two scales of its block: one that
    makes the greatest magnitude the least integer, and one that makes it the greatest.
    """
    if bits == HALF:
        depth = table.shape[1]
        float16 = np.ascontiguousarray(table).astype(np.float16).view(np.uint16)
        return Blocks(bits, depth, depth, float16[:, None], None, None)
    blocks = _by_parts(table, bits, lambda part: _quantized(part, bits))
    assert blocks is not None
    return blocks


def recover_table(table: Array, bits: int, tolerance: float) -> Blocks | None:
    """The blocks of a matrix whose numbers are integer multiples of each block's scale, up to that
    share of them; None for any other matrix.
    """
    return _by_parts(table, bits, lambda part: _recovered(part, bits, tolerance))


def _by_parts(
    table: Array, bits: int, split: Callable[[Array], tuple[Array, Array] | None]
) -> Blocks | None:
    """The matrix in what `split` makes of blocks [columns, blocks, BLOCK]: integers and scales, or
    None where it finds none.
    """
    columns, depth = table.shape
    blocks = -(-depth // BLOCK)
    numbers = np.empty((columns, blocks, BLOCK * bits // 8), np.uint8)
    scales = np.empty((columns, blocks), np.float32)
    step = max(_AT_ONCE // max(blocks * BLOCK, 1), 1)
    for first in range(0, columns, step):
        part = np.zeros((len(table[first : first + step]), blocks * BLOCK), np.float32)
        part[:, :depth] = table[first : first + step]
        result = split(part.reshape(-1, blocks, BLOCK))
        if result is None:
            return None
        numbers[first : first + step] = _packed(result[0], bits)
        scales[first : first + step] = result[1]
    return Blocks(bits, BLOCK, depth, numbers, scales, None)


def scales_of(values: Array, bits: int) -> tuple[Array, Array]:
    """Two scales [.., 1] of blocks [.., numbers]: one makes the number of greatest magnitude the
    least integer, the other the greatest.
    """
    half = np.float32(1 << (bits - 1))
    positions = np.abs(values).argmax(-1)[..., None]
    greatest = np.take_along_axis(values, positions, -1)
    return greatest / -half, greatest / (half - 1)


def divisor(scale: Array) -> Array:
    """The divisor that makes numbers integers: the scale, or infinity for one so small that its
    inverse may be infinite.
    """
    return np.where(np.abs(scale) < _LEAST_SCALE, np.float32(np.inf), scale)


def _quantized(values: Array, bits: int) -> tuple[Array, Array]:
    """The integers of blocks [.., BLOCK] as uint8, and the scales."""
    half = np.float32(1 << (bits - 1))
    best: tuple[Array, Array, Array] | None = None
    for scale in scales_of(values, bits):
        integers = np.clip(np.rint(values / divisor(scale)), -half, half - 1)
        error = np.square(integers * scale - values).sum(-1, keepdims=True)
        if best is None:
            best = integers, scale, error
        else:
            better = error < best[2]
            best = np.where(better, integers, best[0]), np.where(better, scale, best[1]), error
    assert best is not None
    return (best[0] + half).astype(np.uint8), best[1][..., 0]


def _recovered(values: Array, bits: int, tolerance: float) -> tuple[Array, Array] | None:
    """The integers and scales of blocks all of whose numbers are multiples of a scale, which their
    greatest magnitude is, too.
    """
    half = 1 << (bits - 1)
    flat = values.reshape(-1, values.shape[-1])
    numbers, scales = np.empty(flat.shape, np.uint8), np.empty((len(flat), 1), np.float32)
    greatest = np.take_along_axis(flat, np.abs(flat).argmax(-1)[:, None], -1)
    left = np.arange(len(flat))
    for most in (-half, *range(half - 1, 0, -1)):
        scale = greatest[left] / np.float32(most)
        integers = np.rint(flat[left] / divisor(scale))
        close = np.isclose(integers * scale, flat[left], rtol=tolerance, atol=0)
        fits = (close & (integers < half)).all(-1)
        numbers[left[fits]] = (integers[fits] + half).astype(np.uint8)
        scales[left[fits]] = scale[fits]
        left = left[~fits]
        if not len(left):
            return numbers.reshape(values.shape), scales.reshape(values.shape[:-1])
    return None


def _packed(numbers: Array, bits: int) -> Array:
    """The first number of a byte in its lowest bits."""
    if bits == 8:
        return numbers
    return numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4)


def quantize_matrix(array: Array, form: WeightForm, axis: int) -> Array:
    """The matrix as float32 after quantization, blocks along `axis`."""
    table = array if axis == 1 else array.T
    real = dequantize(quantize_table(table, BITS[form]))
    return np.ascontiguousarray(real if axis == 1 else real.T)


def apply_quantization(array: Array, choice: WeightQuantization) -> Array:
    """The matrix of a model's file as float32 after that quantization."""
    if choice.values is None:
        return quantize_matrix(array, choice.form, choice.axis)
    values: Array = np.load(choice.values, allow_pickle=False)
    return values


def objection(array: Array, form: WeightForm) -> str | None:
    """Why the matrix cannot be rounded, None where it can."""
    greatest = np.abs(array).max(initial=0)
    if not np.isfinite(greatest):
        return "it holds numbers that are not finite"
    if form is WeightForm.FLOAT16 and greatest > np.finfo(np.float16).max:
        return "it holds numbers beyond those of float16"
    return None


def bytes_of(form: WeightForm, columns: int, depth: int) -> int:
    """Bytes of a matrix with its scales, panels not filled up."""
    if BITS[form] == HALF:
        return columns * depth * 2
    return columns * -(-depth // BLOCK) * (BLOCK * BITS[form] // 8 + 4)
