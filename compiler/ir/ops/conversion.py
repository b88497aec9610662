"""Conversion of floats to integers, the same on every target for floats beyond the integer type:
LLVM leaves these open, and vectors give other results than single numbers do.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from compiler.ir.builder import Builder
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import pointwise as pw
from compiler.ir.values import Known, Value

_IN_64_BITS = ("int64", "uint64", "uint32")
"""What x86 converts to by way of int64; other integers by way of int32."""


def convert(b: Builder, x: Value, dtype: str) -> Value:
    """Elements converted as by `elementwise.cast`.

    A float goes by way of the least signed integer of 32 or 64 bits that holds the type, of which
    the lowest bits stay: NaN and what is beyond become its least number, as on x86 and in NumPy.
    """
    opaque = not isinstance(x, Known) and ew.is_float(x.dtype)
    if not opaque or not ew.is_integer(dtype):
        return ew.cast(b, x, dtype)
    real = ew.cast(b, x, "float32") if x.dtype in pw.NARROW else x
    return pw.pointwise(b, lambda item: _converted(item, dtype), real, name="convert")


def _converted(item: Any, dtype: str) -> Any:
    bits = 64 if dtype in _IN_64_BITS else 32
    if dtype != "uint64":
        return tirx.Cast(dtype, _signed(item, bits))
    # What int64 lacks above itself.
    above = item >= pw.like(item, 2.0**63)
    within = tirx.And(above, item < pw.like(item, 2.0**64))
    high = tirx.Cast(dtype, tirx.Select(within, item, pw.like(item, 0)))
    return tirx.Select(above, high, tirx.Cast(dtype, _signed(item, bits)))


def _signed(item: Any, bits: int) -> Any:
    limit = pw.like(item, 2.0 ** (bits - 1))
    # Not so of NaN. The least number is a float, where it would be no integer of WGSL.
    fits = tirx.And(item < limit, item >= -limit)
    return tirx.Cast(f"int{bits}", tirx.Select(fits, item, -limit))
