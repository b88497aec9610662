"""Conversion of floats to integers, the same on every target for floats beyond the integer type:
LLVM leaves these open, and vectors give other results than single numbers do.
"""

import math
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw

_IN_64_BITS = ("int64", "uint64", "uint32")
"""What x86 converts to by way of int64; other integers by way of int32."""


def convert(b: Builder, x: Value, dtype: str) -> Value:
    """Elements converted as by `elementwise.cast`.

    A float goes by way of the least signed integer of 32 or 64 bits that holds the type, of which
    the lowest bits stay: NaN and what is beyond become its least number, as on x86 and in NumPy.
    What a graph clips to the type is converted as it is, as kernels of int8 expect it; a NaN that
    was clipped becomes any number of the type.
    """
    opaque = not isinstance(x, Known) and ew.is_float(x.dtype)
    if not opaque or not ew.is_integer(dtype) or _is_clipped(b, x, dtype):
        return ew.cast(b, x, dtype)
    real = ew.cast(b, x, "float32") if x.dtype in pw.HALF_PRECISION else x
    return pw.pointwise(b, lambda item: _converted(item, dtype), real, name="convert")


def _is_clipped(b: Builder, x: Value, dtype: str) -> bool:
    """True if the operators that produce x keep all but NaN in the integer type's range."""
    low, high = _bounds(b, b.tensor(x).expr, _STEPS)
    limits = np.iinfo(np.dtype(dtype))
    return float(limits.min) <= low and high <= float(limits.max)


def _bounds(b: Builder, expr: relax.Expr, steps: int) -> tuple[float, float]:
    """The least and greatest value, but for NaN, that minima, maxima, roundings and sums with
    constants leave; infinite where these do not tell. steps: how many operators to go back.
    """
    if isinstance(expr, GenericConst) and hasattr(expr.value, "numpy"):
        array = expr.value.numpy().astype(np.float64)
        return float(array.min(initial=math.inf)), float(array.max(initial=-math.inf))
    call: Any = b.bb.lookup_binding(expr) if isinstance(expr, relax.Var) else None
    name = getattr(getattr(call, "op", None), "name", "")
    args: Any = getattr(call, "args", ())
    if name == "relax.call_tir":
        name, args = str(args[0].name_hint).rstrip("0123456789"), args[1].fields
    if not steps or name not in _MONOTONE:
        return -math.inf, math.inf
    return _MONOTONE[name](*(_bounds(b, arg, steps - 1) for arg in args))


_STEPS = 6
_MONOTONE: dict[str, Any] = {
    "relax.minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "relax.maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "relax.nn.relu": lambda x: (max(x[0], 0.0), max(x[1], 0.0)),
    "relax.add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "round": lambda x: (_round(x[0]), _round(x[1])),
}
"""What an operator or a program of the import makes of its operands' ranges."""


def _round(value: float) -> float:
    return value if math.isinf(value) else float(round(value))


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
