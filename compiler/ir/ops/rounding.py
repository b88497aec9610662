"""Rounds matrices of floats to integers of few bits, of which a block along the depth shares a
scale, and to narrower floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.ops.nbits import HALF, Blocks, reals
from relaxd.contract.options import WeightForm

BLOCK = 32
BITS = {WeightForm.INT4: 4, WeightForm.INT8: 8, WeightForm.FLOAT16: HALF}
_LEAST_SCALE = np.float32(1e-30)
"""The inverse of a smaller one may be infinite."""
_AT_ONCE = 1 << 18
"""Numbers that are rounded together, so that what lies between the steps stays in cache."""
Array = np.ndarray[Any, Any]


def round_table(table: Array, bits: int) -> Blocks:
    """A float32 matrix [columns, depth] in blocks of integers around the middle of their range, or
    as float16.

    Each number goes to the nearest integer, by the better of two scales of its block: one that
    makes the greatest magnitude the least integer, and one that makes it the greatest.
    """
    columns, depth = table.shape
    if bits == HALF:
        halves = np.ascontiguousarray(table).astype(np.float16).view(np.uint16)
        return Blocks(bits, depth, depth, halves[:, None], None, None)
    blocks = -(-depth // BLOCK)
    numbers = np.empty((columns, blocks, BLOCK * bits // 8), np.uint8)
    scales = np.empty((columns, blocks), np.float32)
    step = max(_AT_ONCE // max(blocks * BLOCK, 1), 1)
    for first in range(0, columns, step):
        part = np.zeros((len(table[first : first + step]), blocks * BLOCK), np.float32)
        part[:, :depth] = table[first : first + step]
        whole, scale = _rounded(part.reshape(-1, blocks, BLOCK), bits)
        numbers[first : first + step] = _packed(whole, bits)
        scales[first : first + step] = scale
    return Blocks(bits, BLOCK, depth, numbers, scales, None)


def _rounded(values: Array, bits: int) -> tuple[Array, Array]:
    """The integers of blocks [.., BLOCK] as uint8, and the scales."""
    half = np.float32(1 << (bits - 1))
    places = np.abs(values).argmax(-1)[..., None]
    greatest = np.take_along_axis(values, places, -1)
    best: tuple[Array, Array, Array] | None = None
    for scale in (greatest / -half, greatest / (half - 1)):
        safe = np.where(np.abs(scale) < _LEAST_SCALE, np.float32(np.inf), scale)
        whole = np.clip(np.rint(values / safe), -half, half - 1)
        error = np.square(whole * scale - values).sum(-1, keepdims=True)
        if best is None:
            best = whole, scale, error
        else:
            better = error < best[2]
            best = np.where(better, whole, best[0]), np.where(better, scale, best[1]), error
    assert best is not None
    return (best[0] + half).astype(np.uint8), best[1][..., 0]


def _packed(numbers: Array, bits: int) -> Array:
    """The first number of a byte in its lowest bits."""
    if bits == 8:
        return numbers
    return numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4)


def rounded(array: Array, form: WeightForm, axis: int) -> Array:
    """The matrix as float32 after rounding, blocks along `axis`."""
    table = array if axis == 1 else array.T
    real = reals(round_table(table, BITS[form]))
    return np.ascontiguousarray(real if axis == 1 else real.T)


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
