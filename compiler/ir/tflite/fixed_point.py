"""The fixed-point arithmetic of TFLite's reference kernels, on numpy's integers.

A factor is `multiplier * 2**(exponent - 31)` with a multiplier of 31 bits. A product is rounded
twice: at 31 bits halves upwards, then at the exponent halves away from zero (gemmlowp's
SaturatingRoundingDoublingHighMul and RoundingDivideByPOT).
"""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_BITS = 31


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """The multiplier and the exponent nearest to a factor."""
    if factor == 0:
        return 0, 0
    mantissa, exponent = math.frexp(factor)
    multiplier = _round_away(mantissa * (1 << _BITS))
    if multiplier == 1 << _BITS:
        multiplier, exponent = multiplier // 2, exponent + 1
    if exponent < -_BITS:
        return 0, 0
    return (multiplier, exponent) if exponent <= 30 else ((1 << _BITS) - 1, 30)


def _round_away(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def multiply(values: Array, multiplier: Any, exponent: Any) -> Array:
    """Int64 values by a factor, as the module says; shapes broadcast."""
    left, right = np.maximum(exponent, 0), np.maximum(-np.asarray(exponent), 0)
    scaled = (values.astype(np.int64) << left) * np.asarray(multiplier, np.int64)
    return divide_by_power((scaled + (1 << _BITS - 1)) >> _BITS, right)


def divide_by_power(values: Array, bits: Any) -> Array:
    """Int64 values by 2**bits, halves away from zero."""
    half = (np.int64(1) << bits) >> 1
    return np.asarray((values + half - ((values < 0) & (np.asarray(bits) > 0))) >> bits)


def round_away(values: Array) -> Array:
    """Floats to the nearest integer, halves away from zero."""
    size = np.abs(values)
    floor = np.floor(size)
    return np.copysign(floor + (size - floor >= 0.5), values)
