"""Finds rows, columns and channels of an output that are wrong as a whole: of those that are far
smaller than the rest, a tolerance beside all of the output shows nothing. Softmax gives such ones.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SMALL_GROUP = 16
"""Elements at least whose differences are taken together."""
WRONG = 0.5
"""The share of a group's own root mean square that its error is where it is wrong as a whole; what
is zero in place of its values has 1."""
FAINT = 2.0**-18
"""The root mean square, as a share of the output's largest value, below which a group may be the
rounding of sums that cancel. Perturbed references decide of the others."""
_EPSILONS = 8
"""How many times its dtype's epsilon that share is at least."""


def error_share(apart: Array, want: Array) -> float:
    """Return the greatest root mean square of the differences of a row, column or channel beside
    its own values, 0 where all groups are faint or small.
    """
    if "float" not in want.dtype.name or not want.size:
        return 0.0
    values = want.astype(np.float32)
    finite = np.isfinite(values) & np.isfinite(apart)
    values = np.where(finite, values, np.float32(0))
    largest = float(np.abs(values).max())
    if not largest:
        return 0.0
    squares, errors = (
        np.square(np.where(finite, side, np.float32(0)) / np.float32(largest))
        for side in (values, apart)
    )
    faint, share = _faint(want.dtype) ** 2, 0.0
    for axis in grouping_axes(want.shape):
        others = tuple(index for index in range(want.ndim) if index != axis)
        own, error = (side.mean(axis=others, dtype=np.float64) for side in (squares, errors))
        clear = own > faint
        if clear.any():
            share = max(share, float((error[clear] / own[clear]).max()))
    return float(np.sqrt(share))


def grouping_axes(shape: tuple[int, ...]) -> Iterator[int]:
    """Yield the axes at each of whose positions there are elements enough."""
    size = int(np.prod(shape))
    for axis, extent in enumerate(shape):
        if extent > 1 and size // extent >= SMALL_GROUP:
            yield axis


def _faint(dtype: np.dtype[Any]) -> float:
    # ml_dtypes' narrow floats are no np.floating: numpy knows nothing of them.
    bits = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}.get(dtype.name, 1)
    return max(FAINT, _EPSILONS * 2.0**-bits)
