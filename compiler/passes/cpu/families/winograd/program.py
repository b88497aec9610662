"""3x3 convolutions with a quarter of the multiplications: Winograd's F(4x4, 3x3), in stages.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016 (arXiv:1509.09308): a tile
of 4x4 results comes from 6x6 inputs by 36 multiplications a channel, where the definition takes
144. The interpolation points are 0, 2/3, -2/3, 3/2, -3/2 and infinity. Points in reciprocal pairs
follow Alam et al., Winograd Convolution for Deep Neural Networks: Efficient Point Selection, 2022
(arXiv:2201.10369); the value is the one that makes rounding errors least (see `POINT`).
"""

from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.arrays import allocate
from compiler.tir.work import ELEMENT_FLOPS

TILE = 4
"""Results of a tile along one axis."""

REACH = 6
"""Inputs along one axis that a tile of results depends on."""

POINTS = REACH * REACH
"""Points of a transformed tile: at each, the channels of all tiles are multiplied by weights."""

POINT = 2 / 3
"""The interpolation points are 0, infinity, POINT, its reciprocal, and the negatives of both.

Of independent operands, the sums of 36 products leave an error that is 4.76 times the direct form's
for the same number of terms, and 7.1 times at the worst position of a tile. No pair of points is
below 4.75 and 7.1; the points 1 and 2 have 10.8 and 31.4.
"""

# Larger tiles such as F(6x6, 3x3) would save more multiplications, but differences of large numbers
# lose digits of float32. Each row of INPUT and column of OUTPUT may have any factor, as long as the
# row of WEIGHT has its reciprocal: these leave the fewest factors that are neither 1 nor -1.
_A, _B = POINT, 1 / POINT
INPUT = np.array(
    [
        [1, 0, -(_A**2 + _B**2), 0, 1, 0],
        [0, -_B, -(_B**2), _A, 1, 0],
        [0, _B, -(_B**2), -_A, 1, 0],
        [0, _B, 1, -(_B**3), -(_B**2), 0],
        [0, -_B, 1, _B**3, -(_B**2), 0],
        [0, 1, 0, -(_A**2 + _B**2), 0, 1],
    ],
    np.float64,
)
# Weights are transformed once, when they are packed.
WEIGHT = (
    np.array(
        [[65, 0, 0], [-27, -18, -12], [-27, 18, -12], [-8, -12, -18], [-8, 12, -18], [0, 0, 65]],
        np.float64,
    )
    / 65
)
OUTPUT = np.array(
    [
        [1, _B, _B, _A**2, _A**2, 0],
        [0, 1, -1, _A, -_A, 0],
        [0, _A, _A, 1, 1, 0],
        [0, _A**2, -(_A**2), _B, -_B, 1],
    ],
    np.float64,
)

PAIRS = (1, 3)
"""Columns of the matrices for an interpolation point, each followed by that for its negative: the
factors of even powers are equal, those of odd ones opposite.
"""

STAGES = ("winograd_input", "winograd_products", "winograd_output")
"""Names of the program's stages, by which the kernel is found."""


def strip_of(channels: int, lanes: int) -> int:
    """Channels that a transform computes at once: a vector of `lanes`, or the largest part of it
    that divides all channels.
    """
    return gcd(channels, lanes)


def transform_weights(weight: np.ndarray, width: int) -> np.ndarray:
    """Transform [O, 3, 3, C] to [36, ceil(O/width), C, width] float32, in float64 so that all
    digits are right.
    """
    columns, _, _, channels = weight.shape
    packed = allocate((REACH * REACH, -(-columns // width), channels, width))
    for panel in range(packed.shape[1]):
        # One panel at a time, which stays in the cache.
        taps = np.zeros((3, 3, channels, width))
        part = weight[panel * width : (panel + 1) * width]
        taps[..., : len(part)] = part.transpose(1, 2, 3, 0)
        rows = np.tensordot(WEIGHT, taps, 1).reshape(REACH, 3, channels * width)
        packed[:, panel] = np.matmul(WEIGHT, rows).reshape(REACH * REACH, channels, width)
    return packed


def winograd(
    data: Any,
    weights: Any,
    inward: Any,
    outward: Any,
    columns: int,
    size: tuple[Any, Any],
    read: Callable[..., Any],
) -> Any:
    """The convolution [N, *size, columns] of data [N, H, W, C].

    weights: of `transform_weights`; inward [6, 6] is INPUT, outward [4, 6] is OUTPUT; read(n,
    row, column, c): the padded input under result (row, column), at any position.
    """
    tiles = [tirx.floordiv(extent + (TILE - 1), TILE) for extent in size]
    # The two matrices are tensors, because TE can index nothing else by its axes.
    spread = _transform_input((data.shape[0], *tiles), int(data.shape[3]), inward, read)
    summed = _multiply(spread, weights, columns)
    u, v = (te.reduce_axis((0, REACH), name=name) for name in "uv")

    def result(n: Any, y: Any, x: Any, o: Any) -> Any:
        factor = outward[y % TILE, u] * outward[x % TILE, v]
        return te.sum(summed[n, y // TILE, x // TILE, u, v, o] * factor, axis=[u, v])

    shape = (data.shape[0], *size, tirx.IntImm("int64", columns))
    return te.compute(shape, result, name=STAGES[2], attrs=_flop_attrs(OUTPUT))


def _transform_input(
    tiles: tuple[Any, ...], channels: int, inward: Any, read: Callable[..., Any]
) -> Any:
    """[*tiles, 6, 6, channels]: the 6x6 inputs under each tile, transformed along both axes."""
    i, j = (te.reduce_axis((0, REACH), name=name) for name in "ij")

    def point(n: Any, y: Any, x: Any, u: Any, v: Any, c: Any) -> Any:
        # Tiles are 4 apart and read 6 inputs, so neighbours share two rows or columns.
        value = read(n, y * TILE + i, x * TILE + j, c)
        return te.sum(value * (inward[u, i] * inward[v, j]), axis=[i, j])

    shape = (*tiles, REACH, REACH, tirx.IntImm("int64", channels))
    return te.compute(shape, point, name=STAGES[0], attrs=_flop_attrs(INPUT))


def _flop_attrs(matrix: np.ndarray) -> dict[str, int]:
    """The attribute with the operations of one element of `matrix @ tile @ matrix.T`: the emitted
    loops apply the matrix along one axis after the other, and skip its zeros and ones.
    """
    results, inputs = matrix.shape
    once = sum(
        np.count_nonzero(factors) - 1 + np.count_nonzero(~np.isin(np.abs(factors), (0, 1)))
        for part in factor_transform(matrix)
        for factors in part
    )
    return {ELEMENT_FLOPS: round(int(once) * (inputs + results) / results**2)}


def factor_transform(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """shared [4, 6] and rows [n, 4 + 6] with matrix = rows[:, :4] @ shared + rows[:, 4:]: sums that
    the two points of a pair share are computed once.
    """
    unit, shared, rows = np.eye(REACH), np.zeros((4, REACH)), np.zeros((len(matrix), 4 + REACH))
    rows[:, 4:] = matrix
    for index, first in zip((0, 2), PAIRS, strict=True):
        pair = slice(first, first + 2)
        if len(matrix) == REACH:
            # The rows of the two points are the sum and the difference of even and odd powers.
            even = np.where(np.arange(REACH) % 2 == 0, matrix[first], 0)
            odd = matrix[first] - even
            scale = np.abs(odd[odd != 0]).min()
            shared[index : index + 2] = even, odd / scale
            rows[pair] = 0
            rows[pair, index : index + 2] = [[1, scale], [1, -scale]]
        else:
            # Each row takes the sum of the two points, or their difference.
            shared[index : index + 2] = unit[first] + unit[first + 1], unit[first] - unit[first + 1]
            equal = matrix[:, first] == matrix[:, first + 1]
            rows[:, index] = np.where(equal, matrix[:, first], 0)
            rows[:, index + 1] = np.where(equal, 0, matrix[:, first])
            rows[:, 4:][:, pair] = 0
    return shared, rows


def _multiply(spread: Any, weights: Any, columns: int) -> Any:
    """[*tiles, 6, 6, columns]: at every point the channels by the transformed weights."""
    *tiles, channels = spread.shape
    k, panel = te.reduce_axis((0, int(channels)), name="c"), int(weights.shape[3])

    def point(n: Any, y: Any, x: Any, u: Any, v: Any, o: Any) -> Any:
        weight = weights[u * REACH + v, o // panel, k, o % panel]
        return te.sum(spread[n, y, x, u, v, k] * weight, axis=[k])

    return te.compute((*tiles, tirx.IntImm("int64", columns)), point, name=STAGES[1])
