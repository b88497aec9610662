"""By how much float32 sums may be off: tests hold them to bounds that follow from the magnitudes of
the operands, not from what one processor gave.

Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 3: however n products are
added, with or without fused multiply-adds, the error is at most n * u / (1 - n * u) of the sum of
their magnitudes, u = 2^-24. A sum that cancels is far off relative to itself.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNIT = 2.0**-24
"""The relative error of rounding to float32."""
TINY = float(np.finfo(np.float32).tiny)
"""Factors below may be taken for zeros (`compiler/passes/simplify/flush_weights.py`)."""


def error_of_matmul(left: Array, right: Array, addend: Array | float = 0.0) -> Array:
    """The greatest error of `left @ right + addend`, element by element."""
    wide, columns = np.abs(left.astype(np.float64)), np.abs(right.astype(np.float64))
    terms = left.shape[-1] + 1
    flushed = TINY * (wide.sum(-1, keepdims=True) + 1)
    magnitudes = wide @ columns + np.abs(np.asarray(addend, np.float64))
    return terms * UNIT / (1 - terms * UNIT) * magnitudes + flushed


def assert_within(got: Array, want: Array, allowed: Array) -> None:
    """Each element of `got` is as near to `want` as is allowed, or NaN where `want` is."""
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    used = np.nan_to_num(np.abs(got.astype(np.float64) - want) / allowed, nan=0.0)
    worst = np.unravel_index(used.argmax(), used.shape)
    assert used[worst] <= 1, (
        f"{got[worst]} at {list(map(int, worst))} in place of {want[worst]}: "
        f"{used[worst]:.3g} times as far off as rounding explains"
    )


def assert_matmul_close(
    got: Array, left: Array, right: Array, addend: Array | float = 0.0, relu: bool = False
) -> None:
    """`got` is `left @ right + addend` of float32 operands, or its maximum with zero, within the
    error of float32; NaN where float64 gives NaN.
    """
    exact = left.astype(np.float64) @ right.astype(np.float64) + np.asarray(addend, np.float64)
    # A maximum with zero does not enlarge an error.
    want = np.maximum(exact, 0) if relu else exact
    assert_within(got, want, error_of_matmul(left, right, addend))
