"""The greater and the lesser of two values, NaN where one of both is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import pointwise as pw
from compiler.ir.programs import OPAQUE
from compiler.ir.values import Known, Value


def greater(b: Builder, x: Value, y: Value) -> Value:
    """max(x, y), element by element."""
    if _both_may_be_nan(x, y):
        return pw.in_float(
            b, lambda p, q: tirx.Select(tirx.isnan(p), p, tirx.max(p, q)), x, y, name="maximum"
        )
    first, second = _known_first(x, y)
    return ew.binary(b, first, second, relax.op.maximum, numpy=np.maximum, symbolic=ex.maximum)


def lesser(b: Builder, x: Value, y: Value) -> Value:
    """min(x, y), element by element."""
    if _both_may_be_nan(x, y):
        return pw.in_float(
            b, lambda p, q: tirx.Select(tirx.isnan(p), p, tirx.min(p, q)), x, y, name="minimum"
        )
    first, second = _known_first(x, y)
    return ew.binary(b, first, second, relax.op.minimum, numpy=np.minimum, symbolic=ex.minimum)


def _known_first(x: Value, y: Value) -> tuple[Value, Value]:
    """Of an unordered pair TVM's maximum and minimum are the second one, which may be NaN."""
    return (y, x) if isinstance(y, Known) and not isinstance(x, Known) else (x, y)


def _both_may_be_nan(x: Value, y: Value) -> bool:
    return ew.is_float(x.dtype) and not isinstance(x, Known) and not isinstance(y, Known)


def or_nan(b: Builder, x: Value, extreme: Value, greatest: Callable[[Value], Value]) -> Value:
    """Extremes of elements of x, but NaN where there is one among them; `greatest` gives the
    maximum of the elements that each is made of.

    An extreme is one instruction, which takes either operand where one is NaN. So NaN is looked for
    by itself: with a comparison beside each maximum TVM does not vectorize a loop, which then takes
    70 times as long.
    """
    if not ew.is_float(x.dtype):
        return extreme
    unset, is_set, nan = (tirx.const(value, x.dtype) for value in (0, 1, math.nan))

    def flag(data: te.Tensor) -> te.Tensor:
        return te.compute(
            data.shape,
            lambda *i: tirx.Select(tirx.isnan(_wide(data(*i))), is_set, unset),
            name="is_nan",
        )

    shape = [ex.prim(extent) for extent in extreme.shape]

    def choose(flags: te.Tensor, values: te.Tensor) -> te.Tensor:
        return te.compute(
            shape,
            lambda *i: tirx.Select(flags(*i) > unset, nan, values(*i)),
            name="or_nan",
        )

    # What is fused with the maximum keeps it from being vectorized just so.
    apart = {"op_pattern": OPAQUE}
    flags = greatest(b.te(flag, x, name="is_nan", attrs=apart))
    return b.te(choose, flags, extreme, name="or_nan", attrs=apart)


def _wide(value: Any) -> Any:
    """TVM has no isnan of bfloat16."""
    return value.astype("float32") if value.ty.dtype == "bfloat16" else value
