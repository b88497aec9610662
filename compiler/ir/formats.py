"""Element types of 8 bits and fewer that no processor and no library of numpy's size computes with:
how their bits are read as float32 and written from it.

A tensor of such a type is a tensor of bytes from here on to the loader
(`relaxd.contract.dims.tensors` lists which), and every expression below is of one such byte.
"""

from dataclasses import dataclass
from typing import Any

from tvm import tirx

_BITS, _BIAS, _INFINITY, _NAN = 23, 127, 0x7F800000, 0x7FC00000
"""Of float32: bits of the mantissa, the exponent's bias, infinity, a NaN."""


@dataclass(frozen=True)
class Float:
    """A float of `width` bits: a sign, an exponent, a mantissa.

    largest, overflow, nan: the bit patterns, without a sign, of the greatest finite number, of what
    is greater where casts do not saturate, and of NaN. unsigned_zero: the pattern of -0 is the only
    NaN.
    """

    width: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    unsigned_zero: bool = False


FLOATS = {
    "float8_e4m3fn": Float(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": Float(8, 3, 8, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "float8_e5m2": Float(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Float(8, 2, 16, 0x7F, 0x80, 0x80, unsigned_zero=True),
    # Without infinities and NaN: ONNX leaves NaN open; ml_dtypes makes it -0, and -NaN 0.
    "float4_e2m1fn": Float(4, 1, 1, 0x7, 0x7, 0x8),
}
EXPONENTS = "float8_e8m0fnu"
"""The powers of two from 2^-127 on: a float32's exponent alone, and 255 for NaN."""
WIDTHS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
"""Bits of the integers; a byte holds the number."""


def width_of(dtype: str) -> int:
    """Bits of one element of such a type."""
    return WIDTHS.get(dtype) or (FLOATS[dtype].width if dtype in FLOATS else 8)


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the greatest number of one of the integers."""
    width = WIDTHS[dtype]
    return (0, (1 << width) - 1) if dtype[0] == "u" else (-(1 << width - 1), (1 << width - 1) - 1)


def decode(byte: Any, dtype: str) -> Any:
    """The float32 that the bits of a float mean; exact for all of them."""
    code = byte.astype("uint32")
    if dtype == EXPONENTS:
        # 2^-127 is a subnormal float32.
        bits = tirx.Select(tirx.EQ(code, _u(0)), _u(1 << _BITS - 1), code << _u(_BITS))
        return _real(tirx.Select(tirx.EQ(code, _u(255)), _u(_NAN), bits))
    form = FLOATS[dtype]
    shift, top = _BITS - form.mantissa, form.width - 1
    magnitude = code & _u((1 << top) - 1)
    normal = (magnitude << _u(shift)) + _u(_BIAS - form.bias << _BITS)
    small = magnitude.astype("float32") * tirx.const(_step(form), "float32")
    bits = tirx.Select(magnitude < _u(1 << form.mantissa), _bits(small), normal)
    bits = bits | ((code >> _u(top) & _u(1)) << _u(31))
    return _real(_special(form, code, magnitude, bits))


def _special(form: Float, code: Any, magnitude: Any, bits: Any) -> Any:
    """The bits of the float32, with infinities and NaN in the place of the patterns that mean
    them.
    """
    if form.unsigned_zero:
        return tirx.Select(tirx.EQ(code, _u(form.nan)), _u(_NAN), bits)
    if form.nan <= form.largest + 1 and form.overflow == form.nan:
        return tirx.Select(tirx.EQ(magnitude, _u(form.nan)), _u(_NAN), bits)
    if form.overflow == form.largest:
        return bits
    infinite = (bits & _u(1 << 31)) | _u(_INFINITY)
    bits = tirx.Select(tirx.EQ(magnitude, _u(form.overflow)), infinite, bits)
    return tirx.Select(magnitude > _u(form.overflow), _u(_NAN), bits)


def encode(value: Any, dtype: str, saturate: bool, round_mode: str = "up") -> Any:
    """The byte of the float nearest to a float32, halves to even.

    saturate: numbers out of range become the greatest, otherwise infinite or NaN. round_mode: `up`,
    `down` or `nearest`, for `EXPONENTS` alone, whose range has no negative numbers.
    """
    bits = _bits(value)
    magnitude = bits & _u((1 << 31) - 1)
    if dtype == EXPONENTS:
        negative = tirx.And(bits > magnitude, magnitude <= _u(_INFINITY))
        below = _u(0 if saturate else 255)
        code = _exponent(magnitude, saturate, round_mode)
        return tirx.Select(negative, below, code).astype("uint8")
    form = FLOATS[dtype]
    code = _nearest(form, magnitude)
    if saturate or form.overflow == form.largest:
        code = tirx.min(code, _u(form.largest))
    else:
        code = tirx.Select(code > _u(form.largest), _u(form.overflow), code)
    code = tirx.Select(magnitude > _u(_INFINITY), _u(form.nan), code)
    sign = (bits >> _u(31)) << _u(form.width - 1)
    if form.unsigned_zero:
        sign = tirx.Select(tirx.EQ(code & _u(form.nan - 1), _u(0)), _u(0), sign)
    return (code ^ sign).astype("uint8")


def _nearest(form: Float, magnitude: Any) -> Any:
    """The pattern nearest to a positive float32, as if the exponent had no end."""
    shift = _BITS - form.mantissa
    odd = magnitude >> _u(shift) & _u(1)
    raised = magnitude + _u((1 << shift - 1) - 1) + odd
    normal = (raised >> _u(shift)) - _u(_BIAS - form.bias << form.mantissa)
    least = _u(_BIAS + 1 - form.bias << _BITS)
    # What is subnormal in the type is a whole number of steps; larger numbers take the other arm.
    steps = _real(tirx.min(magnitude, least)) * tirx.const(1 / _step(form), "float32")
    return tirx.Select(magnitude < least, tirx.nearbyint(steps).astype("uint32"), normal)


def _step(form: Float) -> float:
    """The distance of subnormal numbers."""
    return 2.0 ** (1 - form.bias - form.mantissa)


def _exponent(magnitude: Any, saturate: bool, round_mode: str) -> Any:
    """The power of two for a positive float32, by the table of ONNX's Cast, as ONNX Runtime has it:
    onnx's own evaluator takes numbers without one for subnormal.
    """
    low = _u(1 << _BITS - 1)
    exponent, rest = magnitude >> _u(_BITS), magnitude & _u((1 << _BITS) - 1)
    subnormal = tirx.EQ(exponent, _u(0))
    # Below 2^-126 the next number down is 2^-127, a float32 without an exponent.
    rest = tirx.Select(subnormal, tirx.max(rest, low) - low << _u(1), rest)
    least = {"up": _u(1), "down": _u(1 << _BITS), "nearest": low}[round_mode]
    code = exponent + (rest >= least).astype("uint32")
    beyond = _u(254 if saturate else 255)
    code = tirx.Select(code > _u(254), beyond, code)
    if not saturate:
        code = tirx.Select(magnitude < low, _u(255), code)
    return tirx.Select(magnitude > _u(_INFINITY), _u(255), code)


def wrap(value: Any, dtype: str) -> Any:
    """The lowest bits of an integer expression, of any width, as the byte of a narrow integer."""
    width = WIDTHS[dtype]
    low = value.astype("int32") & tirx.const((1 << width) - 1, "int32")
    if dtype[0] == "u":
        return low.astype("uint8")
    half = tirx.const(1 << width - 1, "int32")
    return ((low ^ half) - half).astype("int8")


def _u(value: int) -> Any:
    return tirx.const(value, "uint32")


def _bits(value: Any) -> Any:
    return tirx.reinterpret("uint32", value)


def _real(bits: Any) -> Any:
    return tirx.reinterpret("float32", bits)
