"""Rounds a matrix so that its products with given rows change least (GPTQ, Frantar et al. 2022)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.ops.quantized.block_matmul import dequantize
from compiler.ir.ops.quantized.quantize_weights import BLOCK, divisor, quantize_table, scales_of

DAMPING = 0.05
"""What is added to the diagonal of the moments, as a share of its mean: depths that the samples
hardly reach would else take any error. With less, other rows than the samples' lose more.
"""
SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Scales that are tried, of the one that reaches the greatest number of a block."""
_AT_ONCE = 1 << 20
"""Numbers of rows that are turned into float64 together."""
Array = np.ndarray[Any, Any]


def moments_of(rows: Array) -> Array:
    """The second moments [depth, depth] of rows [.., depth], added up in float64; rows with a
    number that is not finite are left out.
    """
    depth = rows.shape[-1]
    flat, moments = rows.reshape(-1, depth), np.zeros((depth, depth))
    step = max(_AT_ONCE // depth, 1)
    for first in range(0, len(flat), step):
        part = flat[first : first + step].astype(np.float64)
        part = part[np.isfinite(part).all(1)]
        moments += part.T @ part
    return moments


def calibrate_table(table: Array, moments: Array, bits: int) -> Array:
    """A float32 matrix [columns, depth] as float32 after rounding to integers of `bits` bits, of
    which a block along the depth shares a scale. moments: float64 [depth, depth].

    The depth is rounded number by number, and what a number is off by is spread over those that
    follow, by the inverse of the moments. Blocks that the rows reach most come first, as those
    that follow make up for them. A block's scale is found for what it holds by then. A column that
    is further off than by rounding to nearest, by the moments, is rounded so.
    """
    nearest = dequantize(quantize_table(table, bits))
    blocks = _blocks(moments)
    order = np.concatenate(blocks)
    spreading = _spreading(moments[np.ix_(order, order)])
    calibrated = np.empty_like(nearest)
    calibrated[:, order] = _spread(table[:, order], spreading, list(map(len, blocks)), bits)
    better = _squares(calibrated - table, moments) < _squares(nearest - table, moments)
    return np.where(better[:, None], calibrated, nearest)


def _blocks(moments: Array) -> list[Array]:
    """The depths of each block, by the mean square of what multiplies them."""
    depth = len(moments)
    blocks = [np.arange(first, min(first + BLOCK, depth)) for first in range(0, depth, BLOCK)]
    squares = np.einsum("dd->d", moments)
    return sorted(blocks, key=lambda block: -float(squares[block].sum()))


def _squares(apart: Array, moments: Array) -> Array:
    """The mean square of what each column's products change by, times the rows."""
    wide = apart.astype(np.float64)
    squares: Array = np.einsum("cd,cd->c", wide @ moments, wide)
    return squares


def _spreading(moments: Array) -> Array:
    """The upper triangular U with U^T U the inverse of the damped moments."""
    damped = moments.copy()
    diagonal = np.einsum("dd->d", damped)
    mean = diagonal.mean()
    diagonal[diagonal == 0] = mean
    diagonal += DAMPING * mean
    # The factor of the moments in reverse order, so that what comes last is spread over nothing.
    lower = np.linalg.cholesky(damped[::-1, ::-1])
    return np.triu(np.linalg.inv(lower)[::-1, ::-1])


def _spread(table: Array, spreading: Array, sizes: Sequence[int], bits: int) -> Array:
    """The matrix after rounding; sizes: of the blocks, in the order of the depths."""
    left, quantized = table.astype(np.float64), np.empty(table.shape, np.float32)
    last = 0
    for size in sizes:
        first, last = last, last + size
        numbers, errors = _block(left[:, first:last], spreading[first:last, first:last], bits)
        quantized[:, first:last] = numbers
        left[:, last:] -= errors @ spreading[first:last, last:]
    return quantized


def _block(left: Array, own: Array, bits: int) -> tuple[Array, Array]:
    """Numbers float32 [columns, depths of a block], by the scale of each column that loses least,
    and what each is off by over its entry of the diagonal.
    """
    best: tuple[Array, Array, Array] | None = None
    for widest in scales_of(left.astype(np.float32), bits):
        for share in SHARES:
            numbers, errors = _by_scale(left, own, widest * np.float32(share), bits)
            lost = np.square(errors).sum(1, keepdims=True)
            if best is None:
                best = numbers, errors, lost
                continue
            better = lost < best[2]
            best = (
                np.where(better, numbers, best[0]),
                np.where(better, errors, best[1]),
                np.where(better, lost, best[2]),
            )
    assert best is not None
    return best[0], best[1]


def _by_scale(left: Array, own: Array, scale: Array, bits: int) -> tuple[Array, Array]:
    """`_block` by these scales [columns, 1]."""
    half = 1 << (bits - 1)
    left, errors = left.copy(), np.empty(left.shape)
    quantized = np.empty(left.shape, np.float32)
    wide, safe = scale.astype(np.float64), divisor(scale).astype(np.float64)
    for column in range(left.shape[1]):
        integers = np.clip(np.rint(left[:, column : column + 1] / safe), -half, half - 1)
        quantized[:, column : column + 1] = integers.astype(np.float32) * scale
        errors[:, column : column + 1] = (left[:, column : column + 1] - integers * wide) / own[
            column, column
        ]
        left[:, column + 1 :] -= errors[:, column : column + 1] * own[column, column + 1 :]
    return quantized, errors
