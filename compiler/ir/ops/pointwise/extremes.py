"""The greater and the lesser of two values, NaN where one of both is."""

import numpy as np
from tvm import relax, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex


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
    """Order a pair so that a tensor comes second: TVM's maximum and minimum of an unordered pair is
    the second one, which may be NaN.
    """
    return (y, x) if isinstance(y, Known) and not isinstance(x, Known) else (x, y)


def _both_may_be_nan(x: Value, y: Value) -> bool:
    return ew.is_float(x.dtype) and not isinstance(x, Known) and not isinstance(y, Known)
