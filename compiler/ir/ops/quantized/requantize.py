"""Accumulators of integers brought to another scale by a fixed-point factor, in integers alone."""

from typing import Any

from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise.programs import pointwise

_BITS = 31
"""Of a multiplier."""


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
    exponents = exponent.data if isinstance(exponent, Known) else None
    shifts_left = exponents is None or bool((exponents > 0).any())
    shifts_right = exponents is None or bool((exponents < 0).any())

    def scale_element(item: Any, factor: Any, power: Any) -> Any:
        wide = item.astype("int64")
        if once:
            result = _round_once(wide * factor.astype("int64"), power)
            return finish(result)
        if shifts_left:
            wide = wide << tirx.max(power, _int(0)).astype("int64")
        scaled = wide * factor.astype("int64") + tirx.const(1 << _BITS - 1, "int64")
        result = (scaled >> tirx.const(_BITS, "int64")).astype("int32")
        if shifts_right:
            result = _divide(result, tirx.max(_int(0) - power, _int(0)))
        return finish(result)

    def finish(result: Any) -> Any:
        return tirx.min(tirx.max(result + _int(zero), _int(low)), _int(high)).astype(dtype)

    return pointwise(b, scale_element, x, multiplier, exponent, name="requantize")


def _round_once(scaled: Any, power: Any) -> Any:
    """An int64 by 2**(31 - power), halves upwards."""
    bits = (_int(_BITS) - power).astype("int64")
    half = tirx.const(1, "int64") << (bits - tirx.const(1, "int64"))
    return ((scaled + half) >> bits).astype("int32")


def _divide(value: Any, bits: Any) -> Any:
    """An int32 by 2**bits, halves away from zero."""
    mask = (_int(1) << bits) - _int(1)
    least = (mask >> _int(1)) + (value < _int(0)).astype("int32")
    return (value >> bits) + ((value & mask) > least).astype("int32")


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
