"""Arithmetic on extents: an extent is a Python int or an int64 TVM expression over dims."""

import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from tvm import tirx
from tvm.ir import Expr as PrimExpr

from relaxd.contract.dims.names import with_names

Extent: TypeAlias = "int | PrimExpr"
Scalar: TypeAlias = "int | float | bool | PrimExpr"


def prim(value: Scalar, dtype: str = "int64") -> PrimExpr:
    """Convert to a TVM expression of `dtype`, with a cast if needed."""
    if isinstance(value, PrimExpr):
        return value if value.ty.dtype == dtype else tirx.Cast(dtype, value)
    return tirx.const(value, dtype)


def plain(value: Scalar) -> Scalar:
    """A constant expression as a Python value, any other value unchanged."""
    if isinstance(value, tirx.IntImm):
        return bool(value.value) if value.ty.dtype == "bool" else int(value.value)
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    return value


def spell(value: Scalar) -> str:
    """An extent as declarations spell it: `seq + 1`, not TVM's `seq + T.int64(1)`."""
    numbers = re.sub(r"\bT\.int(?:32|64)\((-?\d+)\)", r"\1", str(value))
    return with_names(re.sub(r"\bT\.", "", numbers))


def _binary(
    on_ints: Callable[[Any, Any], Any], on_exprs: Callable[[PrimExpr, PrimExpr], PrimExpr]
) -> Callable[[Scalar, Scalar], Any]:
    def apply(a: Scalar, b: Scalar) -> Any:
        a, b = plain(a), plain(b)
        if not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
            return on_ints(a, b)
        dtype = a.ty.dtype if isinstance(a, PrimExpr) else b.ty.dtype  # type: ignore[union-attr]
        return on_exprs(prim(a, dtype), prim(b, dtype))

    return apply


def _truncdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


add = _binary(operator.add, operator.add)
sub = _binary(operator.sub, operator.sub)
mul = _binary(operator.mul, operator.mul)
floordiv = _binary(operator.floordiv, tirx.floordiv)
floormod = _binary(operator.mod, tirx.floormod)
truncdiv = _binary(_truncdiv, tirx.truncdiv)
truncmod = _binary(lambda a, b: a - b * _truncdiv(a, b), tirx.truncmod)
minimum = _binary(min, tirx.min)
maximum = _binary(max, tirx.max)
equal = _binary(operator.eq, tirx.EQ)
not_equal = _binary(operator.ne, tirx.NE)
less = _binary(operator.lt, tirx.LT)
less_equal = _binary(operator.le, tirx.LE)
greater = _binary(operator.gt, tirx.GT)
greater_equal = _binary(operator.ge, tirx.GE)
both = _binary(lambda a, b: bool(a) and bool(b), tirx.And)
either = _binary(lambda a, b: bool(a) or bool(b), tirx.Or)


def ceildiv(a: Extent, b: Extent) -> Extent:
    """a / b rounded up, b > 0."""
    return floordiv(add(a, sub(b, 1)), b)


def divisor(extent: Extent) -> PrimExpr:
    """An extent by which the place of an element is divided: 1 where no element has a place."""
    return prim(1 if plain(extent) == 0 else extent)


def negate(condition: Scalar) -> Scalar:
    """Logical not."""
    condition = plain(condition)
    return tirx.Not(condition) if isinstance(condition, PrimExpr) else not condition


def select(condition: Scalar, then: Scalar, otherwise: Scalar) -> Any:
    """`then` where `condition` holds, else `otherwise`."""
    condition = plain(condition)
    if not isinstance(condition, PrimExpr):
        return then if condition else otherwise
    dtype = next(
        (value.ty.dtype for value in (then, otherwise) if isinstance(value, PrimExpr)),
        _natural(then, otherwise),
    )
    return tirx.Select(condition, prim(then, dtype), prim(otherwise, dtype))


def _natural(*values: Scalar) -> str:
    """The common dtype of Python numbers."""
    return (
        "float64"
        if any(isinstance(v, float) for v in values)
        else "bool"
        if all(isinstance(v, bool) for v in values)
        else "int64"
    )


def prod(extents: Any) -> Extent:
    """Product of an iterable of extents, 1 when empty."""
    total: Extent = 1
    for extent in extents:
        total = mul(total, extent)
    return total


def total(extents: Any) -> Extent:
    """Sum of an iterable of extents, 0 when empty."""
    result: Extent = 0
    for extent in extents:
        result = add(result, extent)
    return result
