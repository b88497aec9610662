"""Functions of one tensor that importers share."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import Expr as PrimExpr

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex

Emit = Callable[[relax.Expr], relax.Expr]
Fold = Callable[[Any], Any]

OF_FLOATS: Mapping[str, tuple[Emit, Fold | None]] = {
    "exp": (relax.op.exp, np.exp),
    "log": (relax.op.log, np.log),
    "sqrt": (relax.op.sqrt, np.sqrt),
    "sin": (relax.op.sin, np.sin),
    "cos": (relax.op.cos, np.cos),
    "tan": (relax.op.tan, np.tan),
    "asin": (relax.op.asin, np.arcsin),
    "acos": (relax.op.acos, np.arccos),
    "atan": (relax.op.atan, np.arctan),
    "sinh": (relax.op.sinh, np.sinh),
    "cosh": (relax.op.cosh, np.cosh),
    "tanh": (relax.op.tanh, np.tanh),
    "asinh": (relax.op.asinh, np.arcsinh),
    "acosh": (relax.op.acosh, np.arccosh),
    "atanh": (relax.op.atanh, np.arctanh),
    "erf": (relax.op.erf, None),
    "sigmoid": (relax.op.sigmoid, None),
}
"""Functions of floats by their lower-case names: Relax's operator, and numpy's function for known
arrays.
"""


def of_floats(b: Builder, x: Value, emit: Emit, fold: Fold | None = None) -> Value:
    """A function of floats; those of 16 bits are computed in float32 and cast once."""
    if x.dtype in pw.HALF_PRECISION:
        return ew.cast(b, ew.unary(b, ew.cast(b, x, "float32"), emit, numpy=fold), x.dtype)
    return ew.unary(b, x, emit, numpy=fold)


def constant(x: Value, value: float) -> Known:
    """A number of the dtype of `x`, of rank 0."""
    return Known(np.asarray(value, np.dtype(x.dtype)), x.dtype)


def negative(b: Builder, x: Value) -> Value:
    """-x."""
    return ew.unary(b, x, relax.op.negative, numpy=np.negative, symbolic=lambda v: ex.sub(0, v))


def absolute(b: Builder, x: Value) -> Value:
    """|x|."""
    return ew.unary(
        b,
        x,
        relax.op.abs,
        numpy=np.abs,
        symbolic=lambda v: ex.select(ex.less(v, 0), ex.sub(0, v), v),
    )


def relu(b: Builder, x: Value) -> Value:
    """max(x, 0), a NaN staying NaN."""
    if ew.is_float(x.dtype):
        return ew.unary(b, x, relax.op.nn.relu, numpy=lambda v: np.maximum(v, 0))
    return ew.binary(b, x, constant(x, 0), relax.op.maximum, numpy=np.maximum, symbolic=ex.maximum)


def leaky_relu(b: Builder, x: Value, slope: Value) -> Value:
    """x where it is not negative, slope * x elsewhere; the slope broadcasts to x."""
    is_negative = ew.compare(b, x, constant(x, 0), "less")
    return ew.where(b, is_negative, ew.multiply(b, x, slope), x)


def sign(b: Builder, x: Value, keep_nan: bool) -> Value:
    """-1, 0 or 1; NaN or 0 for NaN."""
    if isinstance(x, Known) and not x.symbolic:
        return Known(np.sign(x.data), x.dtype)

    def sign_of(v: Any) -> Any:
        one, zero = pw.like(v, 1), pw.like(v, 0)
        below = zero if x.dtype.startswith("uint") else pw.like(v, -1)
        other = v if keep_nan else zero
        return tirx.Select(v > zero, one, tirx.Select(v < zero, below, other))

    return pw.pointwise(b, sign_of, x, name="sign")


def round_extent(item: Any, scalar: Fold) -> Any:
    """An extent rounded by `scalar`; a float that was cast from an integer stays as it is."""
    if isinstance(item, tirx.Cast) and item.value.ty.dtype == "int64":
        return item
    return scalar(item) if isinstance(item, PrimExpr) else item
