"""Numbers that are stored as float16 and computed as float32.

Processors that convert vectors (F16C, NEON) do it as they load. LLVM has others call a function for
each number, in place of which these loops compute with integers and one product.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, dtype_of

_BIAS = 2.0**112
"""Between the exponents of float32 and float16: by it, the bits of a float16 in the place of those
of a float32 become the same number, subnormal ones too.
"""
_INFINITY = 0x1F << 23
"""The exponent of infinities and NaN of float16, in the place of a float32's."""


def widened(value: Any, unit: VectorUnit) -> Expr:
    """The value, of which the conversion of a float16 is written out where the processor has none;
    other values as they are.
    """
    if unit.converts_float16 or not isinstance(value, prim.Cast):
        return value
    if (dtype_of(value.value), dtype_of(value)) != ("float16", "float32"):
        return value
    return _computed(tirx.reinterpret("uint16", value.value).astype("uint32"))


def _computed(half: Expr) -> Expr:
    """The float32 of a float16's bits, in a uint32."""

    def u32(number: int) -> Expr:
        return tirx.const(number, "uint32")

    magnitude = (half & u32(0x7FFF)) << u32(13)
    finite = tirx.reinterpret("float32", magnitude) * tirx.const(_BIAS, "float32")
    whole = tirx.Select(
        magnitude >= u32(_INFINITY),
        magnitude | u32(0x7F800000),
        tirx.reinterpret("uint32", finite),
    )
    return tirx.reinterpret("float32", whole | (half & u32(0x8000)) << u32(16))
