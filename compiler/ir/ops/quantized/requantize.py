"""Accumulators of integers brought to another scale by a fixed-point factor, in integers alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise.programs import pointwise

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
    finish = partial(_finish, zero=zero, low=low, high=high, dtype=dtype)
    if not once and isinstance(multiplier, Known) and isinstance(exponent, Known):
        factors = multiplier.data.astype("int64"), exponent.data.astype("int64")
        if _is_plain(*factors):
            return _scale_plainly(b, x, *factors, finish)
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
    return pointwise(
        b, lambda *items: finish(scale(*items)), x, multiplier, exponent, name="requantize"
    )


def _is_plain(multiplier: Any, exponent: Any) -> bool:
    """True for factors as of nearly all convolutions: below 1/4, with all bits of a multiplier."""
    return bool(
        multiplier.size
        and (multiplier >= 1 << _BITS - 1).all()
        and (exponent <= -2).all()
        and (exponent >= -_BITS).all()
    )


def _scale_plainly(
    b: Builder, x: Value, multiplier: Any, exponent: Any, finish: Callable[[Any], Any]
) -> Value:
    """The same to the bit as `_scale_twice` where `_is_plain`, in operations of 32 bits but for one
    product, whose upper half, rounded, is an instruction of its own on ARM.
    """
    # x * multiplier / 2**31 = x + x * (2 * multiplier - 2**32) / 2**32.
    complement = Known.of((2 * multiplier - (1 << 32)).astype("int32"))
    # Divided by 2**(bits - 1) first, then by 2 with the halves: a carry of one bit.
    bits = Known.of((-1 - exponent).astype("int32"))

    def scale_element(item: Any, factor: Any, shift: Any) -> Any:
        scaled = item.astype("int64") * factor.astype("int64")
        half = tirx.const(1 << _BITS, "int64")
        wide = item.astype("int32")
        high = wide + ((scaled + half) >> tirx.const(32, "int64")).astype("int32")
        # Less one where negative: halves go away from zero.
        away = high + (high >> _int(_BITS))
        return finish(((away >> shift) + _int(1)) >> _int(1))

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
    is_moved = tirx.all(value < tirx.const(0, "int64"), bits > _int(0))
    return (value + half - is_moved.astype("int64")) >> wide


def _finish(value: Any, zero: int, low: int, high: int, dtype: str) -> Any:
    """The scaled integer plus the zero point, saturated."""
    wide = value.ty.dtype
    moved = value + tirx.const(zero, wide)
    return tirx.min(tirx.max(moved, tirx.const(low, wide)), tirx.const(high, wide)).astype(dtype)


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
