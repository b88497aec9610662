"""Conversion of float16 to float32 on processors without an instruction for it.

Processors with F16C or NEON convert vectors as they load them. For others LLVM would call a
function for each element; integer operations and one multiplication take its place.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, dtype_of

_BIAS = 2.0**112
"""The factor between the exponent biases: a float16's exponent and mantissa, shifted to where
float32 has them, times this is the same number, subnormal ones too.
"""
_INFINITY = 0x1F << 23
"""The exponent of infinities and NaN of float16, shifted to where float32 has it."""


def convert_float16(value: Any, unit: VectorUnit) -> Expr:
    """Replace a cast of float16 to float32 by arithmetic where the processor has no instruction;
    other values are returned unchanged.
    """
    if unit.converts_float16 or not isinstance(value, prim.Cast):
        return value
    if (dtype_of(value.value), dtype_of(value)) != ("float16", "float32"):
        return value
    return _compute_float32(tirx.reinterpret("uint16", value.value).astype("uint32"))


def _compute_float32(half: Expr) -> Expr:
    """The float32 of a float16's bits, in a uint32."""

    def u32(number: int) -> Expr:
        return tirx.const(number, "uint32")

    magnitude = (half & u32(0x7FFF)) << u32(13)
    finite = tirx.reinterpret("float32", magnitude) * tirx.const(_BIAS, "float32")
    bits = tirx.Select(
        magnitude >= u32(_INFINITY),
        magnitude | u32(0x7F800000),
        tirx.reinterpret("uint32", finite),
    )
    return tirx.reinterpret("float32", bits | (half & u32(0x8000)) << u32(16))
