"""Finds what channels of rows are divided by, and rows of weights multiplied, before both are
rounded to 8 bits (SmoothQuant, Xiao et al. 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.quantize.onnx.row_writer import MOST, by_column

STRENGTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""How much of what channels differ by goes to the weights, 1 being all of it."""
_MOST_LEFT = 0.95
"""The share of the error that has to be left at most: scaling takes a pass over the rows."""
_LEAST = 1e-3
"""The share of the greatest channel that others are taken for at least: one that the samples hardly
reach would else be the greatest of any other row.
"""
_ROWS = 2048
"""Rows that are multiplied, spread over those of the samples."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SmoothScales:
    """scales: float32 [depth]; before, after: the error of the products without and with them."""

    scales: Array
    strength: float
    before: float
    after: float


def find_scales(rows: Array, weights: Sequence[Array]) -> SmoothScales | None:
    """The scales by which products of the rows [.., depth] by all weights [depth, columns] lose
    least; None where that is no less to speak of.
    """
    flat = spread_rows(rows)
    if not flat.any():
        return None
    exact = [flat @ weight for weight in weights]
    before = _error(flat, weights, exact)
    candidates = []
    for strength in STRENGTHS:
        scales = channel_scales(flat, weights, strength)
        scaled = [scales[:, None] * weight for weight in weights]
        candidates.append((_error(flat / scales, scaled, exact), strength, scales))
    after, strength, scales = min(candidates, key=lambda one: one[0])
    return SmoothScales(scales, strength, before, after) if after < _MOST_LEFT * before else None


def spread_rows(rows: Array) -> Array:
    """Some of the rows [.., depth] that are finite, spread over all."""
    flat = rows.reshape(-1, rows.shape[-1])
    flat = flat[np.isfinite(flat).all(1)]
    return np.asarray(flat[:: max(len(flat) // _ROWS, 1)])


def channel_scales(rows: Array, weights: Sequence[Array], strength: float) -> Array:
    """Divisors of the channels of rows that move `strength` of what channels differ by to the
    weights: float32 [depth].
    """
    channels = _bounded(np.abs(rows).max(0))
    others = _bounded(np.max([np.abs(one).max(1) for one in weights], axis=0))
    scales = channels**strength / others ** (1 - strength)
    return np.asarray(scales / np.exp(np.log(scales).mean()), np.float32)


def _bounded(sizes: Array) -> Array:
    return np.asarray(np.maximum(sizes.astype(np.float64), _LEAST * sizes.max()))


def _error(rows: Array, weights: Sequence[Array], exact: Sequence[Array]) -> float:
    """Root of the mean of what rounding changes of each product, as a share of its square."""
    greatest = np.abs(rows).max(1, keepdims=True)
    step = np.where(greatest > 0, greatest, 1) / np.float32(MOST)
    quantized, shares = np.rint(rows / step) * step, []
    for weight, want in zip(weights, exact, strict=True):
        integers, scales = by_column(weight, 0)
        square = float(np.square(want).sum())
        apart = float(np.square(quantized @ (integers * scales) - want).sum())
        shares.append(apart / square if square else 0.0)
    return float(np.sqrt(np.mean(shares)))
