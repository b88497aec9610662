"""Accumulators of integers brought to another scale by a fixed-point factor, in integers alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise.programs import pointwise
from compiler.tir.exprs import let_in

_BITS = 31
"""Of a multiplier."""
_MOST = (1 << 32) - 1
"""Elements shifted left are saturated here: their product fits 64 bits, and what it gives is beyond
every limit, as that of larger ones would be.
"""


def requantize(
    b: Builder,
    x: Value,
    multiplier: Value,
    exponent: Value,
    zero: int,
    low: int,
    high: int,
    dtype: str,
    once: bool = False,
) -> Value:
    """Return `x * multiplier * 2**(exponent - 31) + zero` within [low, high], in `dtype`.

    The product is rounded twice: at 31 bits halves upwards, then at the exponent halves away from
    zero, as gemmlowp and most of TFLite's reference kernels do it; or `once`, halves upwards. x:
    integers of up to 32 bits; multiplier and exponent: int32, which broadcast to x.
    """
    b.quantized = True
    saturate = partial(_saturate, low=low, high=high, dtype=dtype)
    if not once and isinstance(multiplier, Known) and isinstance(exponent, Known):
        factors = multiplier.data.astype("int64"), exponent.data.astype("int64")
        if _is_plain(*factors):
            return _scale_plainly(b, x, *factors, zero, saturate)
    exponents = exponent.data if isinstance(exponent, Known) else None
    scale = (
        _scale_once
        if once
        else partial(
            _scale_twice,
            shifts_left=exponents is None or bool((exponents > 0).any()),
            shifts_right=exponents is None or bool((exponents < 0).any()),
        )
    )

    def scale_element(*items: Any) -> Any:
        scaled = scale(*items)
        return saturate(scaled + tirx.const(zero, scaled.ty.dtype))

    return pointwise(b, scale_element, x, multiplier, exponent, name="requantize")


def _is_plain(multiplier: Any, exponent: Any) -> bool:
    """True for factors as of nearly all convolutions: 0, or below 1/4 with all bits of a
    multiplier.
    """
    has_bits = (multiplier >= 1 << _BITS - 1) & (exponent <= -2) & (exponent >= -_BITS)
    return bool(multiplier.size and (has_bits | (multiplier == 0)).all())


def _scale_plainly(
    b: Builder,
    x: Value,
    multiplier: Any,
    exponent: Any,
    zero: int,
    saturate: Callable[[Any], Any],
) -> Value:
    """The same to the bit as `_scale_twice` where `_is_plain`, in operations of 32 bits but for one
    product, whose upper half, rounded, is an instruction of its own on ARM.
    """
    # A factor of 0 is one of 1/2 by a shift that leaves the sign, which is rounded off.
    none = multiplier == 0
    multiplier = np.where(none, 1 << _BITS - 1, multiplier)
    exponent = np.where(none, -1 - _BITS, exponent)
    # x * multiplier / 2**31 = x + x * (2 * multiplier - 2**32) / 2**32.
    complement = Known.of((2 * multiplier - (1 << 32)).astype("int32"))
    # Divided by 2**(bits - 1) first, then by 2 with the half and the zero point.
    bits = Known.of((-1 - exponent).astype("int32"))

    def scale_element(item: Any, factor: Any, shift: Any) -> Any:
        def multiply(number: Any) -> Any:
            scaled = number.astype("int64") * factor.astype("int64")
            high = (scaled + tirx.const(1 << _BITS, "int64")) >> tirx.const(32, "int64")
            return let_in("high", number + high.astype("int32"), divide)

        def divide(high: Any) -> Any:
            # Less one where negative: halves go away from zero.
            away = (high + (high >> _int(_BITS))) >> shift
            return saturate((away + _int(1 + 2 * zero)) >> _int(1))

        return let_in("number", item.astype("int32"), multiply)

    return pointwise(b, scale_element, x, complement, bits, name="requantize")


def _scale_twice(
    item: Any, factor: Any, power: Any, *, shifts_left: bool, shifts_right: bool
) -> Any:
    """An element by a factor, rounded at 31 bits and at the exponent, in int64."""
    wide = item.astype("int64")
    if shifts_left:
        most = tirx.const(_MOST, "int64")
        wide = wide << tirx.max(power, _int(0)).astype("int64")
        wide = tirx.min(tirx.max(wide, -most), most)
    scaled = wide * factor.astype("int64") + tirx.const(1 << _BITS - 1, "int64")
    result = scaled >> tirx.const(_BITS, "int64")
    return _divide(result, tirx.max(_int(0) - power, _int(0))) if shifts_right else result


def _scale_once(item: Any, factor: Any, power: Any) -> Any:
    """An element by a factor, rounded once with halves upwards, in int64."""
    scaled = item.astype("int64") * factor.astype("int64")
    bits = (_int(_BITS) - power).astype("int64")
    half = tirx.const(1, "int64") << (bits - tirx.const(1, "int64"))
    return (scaled + half) >> bits


def _divide(value: Any, bits: Any) -> Any:
    """An int64 by 2**bits, halves away from zero."""
    wide, one = bits.astype("int64"), tirx.const(1, "int64")
    half = (one << wide) >> one

    def divide(number: Any) -> Any:
        is_moved = tirx.all(number < tirx.const(0, "int64"), bits > _int(0))
        return (number + half - is_moved.astype("int64")) >> wide

    return let_in("number", value, divide)


def _saturate(value: Any, low: int, high: int, dtype: str) -> Any:
    """An integer within [low, high]."""
    limits = (tirx.const(limit, value.ty.dtype) for limit in (high, low))
    return tirx.max(tirx.min(value, next(limits)), next(limits)).astype(dtype)


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
