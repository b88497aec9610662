"""Finds the grid of 256 numbers that a value loses least by, at the samples' values of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.quantize.calibration.smoothing import STRENGTHS, channel_scales, spread_rows
from compiler.quantize.onnx.matmuls import Grid
from compiler.quantize.onnx.row_writer import by_column

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4)
"""Shares of the range that a grid may cover: numbers beyond it are rounded to its end."""
_MOST = 255
_NUMBERS = 1 << 17
"""Numbers that are rounded to compare grids, spread over all."""
_LEAST = 2.0**-100
"""The range that a value is taken for at least, so that inverses are finite."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StaticGrid:
    """grid: of the numbers, divided by `scales` (float32 [depth]) where there are some, found with
    that `strength`; error: what rounding changes, of images as a share of the values' own square,
    of rows of the products'.
    """

    grid: Grid
    error: float
    scales: Array | None = None
    strength: float | None = None


def of_images(values: Array) -> StaticGrid | None:
    """The grid of a value of any shape; None where no number of it is finite."""
    numbers = _subsample(values)
    if numbers is None:
        return None
    candidates = []
    for share in SHARES:
        grid = _grid(numbers, share)
        candidates.append((float(np.square(round_to_grid(numbers, grid) - numbers).sum()), grid))
    least, grid = min(candidates, key=lambda one: one[0])
    return StaticGrid(grid, _share(least, float(np.square(numbers).sum())))


def of_rows(values: Array, weights: Sequence[Array]) -> StaticGrid | None:
    """The grid of rows [.., depth], and the scales of their channels, by which products of the rows
    by all weights [depth, columns] lose least; None where no row is finite.
    """
    rows = spread_rows(values)
    if not len(rows):
        return None
    exact = [rows @ weight for weight in weights]
    best: StaticGrid | None = None
    for strength in (None, *(STRENGTHS if rows.any() else ())):
        scales = None if strength is None else channel_scales(rows, weights, strength)
        divided = rows if scales is None else rows / scales
        quantized = [
            _by_column(weight if scales is None else scales[:, None] * weight) for weight in weights
        ]
        for share in SHARES:
            grid = _grid(divided, share)
            operands = round_to_grid(divided, grid)
            errors = [
                _share(float(np.square(operands @ one - want).sum()), float(np.square(want).sum()))
                for one, want in zip(quantized, exact, strict=True)
            ]
            error = float(np.sqrt(np.mean(np.square(errors))))
            if best is None or error < best.error:
                best = StaticGrid(grid, error, scales, strength)
    return best


def round_to_grid(numbers: Array, grid: Grid) -> Array:
    """Replace each number by the nearest of the grid."""
    step = np.float32(grid.step)
    inverse = np.float32(1) / step
    integers = np.rint(np.clip(numbers * inverse, -grid.zero, _MOST - grid.zero))
    return np.asarray(integers * step)


def _grid(numbers: Array, share: float) -> Grid:
    """The grid over a share of the numbers' range, which holds 0 exactly."""
    low, high = (share * float(bound) for bound in (min(numbers.min(), 0), max(numbers.max(), 0)))
    step = np.float32(max(high - low, _LEAST) / _MOST)
    return Grid(float(step), int(np.clip(np.rint(-low / step), 0, _MOST)))


def _subsample(values: Array) -> Array | None:
    numbers = values.reshape(-1)
    # An odd distance: an even one could meet the same few channels alone.
    numbers = numbers[:: len(numbers) // _NUMBERS | 1]
    numbers = numbers[np.isfinite(numbers)].astype(np.float32)
    return numbers if len(numbers) else None


def _by_column(weight: Array) -> Array:
    integers, scales = by_column(weight, 0)
    return np.asarray(integers * scales)


def _share(apart: float, square: float) -> float:
    return float(np.sqrt(apart / square)) if square else 0.0
