"""Elementwise operators on values: folded where known, symbolic on shapes, Relax otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import Expr as PrimExpr

from compiler.ir.graph.builder import MAX_SYMBOLS, Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.pointwise.broadcast import align
from compiler.ir.shapes import extents as ex

FOLD_LIMIT = 1 << 22
"""Known arrays of more elements than this are folded by the compiled program instead of numpy at
import.
"""


_REFLEXIVE = ("equal", "not_equal", "less_equal", "greater_equal")


def is_integer(dtype: str) -> bool:
    """True for a dtype of integers (bool is none)."""
    return dtype.startswith(("int", "uint"))


def is_float(dtype: str) -> bool:
    """True for a floating-point dtype."""
    return dtype.startswith(("float", "bfloat"))


def binary(
    b: Builder,
    x: Value,
    y: Value,
    emit: Callable[[relax.Expr, relax.Expr], relax.Expr],
    *,
    numpy: Callable[[Any, Any], Any] | None = None,
    symbolic: Callable[[Any, Any], Any] | None = None,
    dtype: str | None = None,
) -> Value:
    """A broadcasting binary operator; `dtype` is the result's where it is not the operands'
    (comparisons).

    numpy: how known arrays fold; symbolic: how arrays of dims fold, element by element.
    """
    result = dtype or x.dtype
    if isinstance(x, Known) and isinstance(y, Known) and is_folded(x, y):
        if not x.symbolic and not y.symbolic and numpy is not None:
            with np.errstate(all="ignore"):
                return Known(np.asarray(numpy(x.data, y.data)).astype(np.dtype(result)), result)
        if (x.symbolic or y.symbolic) and symbolic is not None:
            return map_symbols(b, symbolic, x, y, dtype=result)
    (left, right), shape = align(b, x, y)
    return b.emit(emit(left.expr, right.expr), shape)


def is_folded(x: Known, y: Known) -> bool:
    """True if the import computes an operator on known arrays, not the compiled program."""
    if x.symbolic or y.symbolic:
        return _few(x, y)
    return max(x.data.size, y.data.size) <= FOLD_LIMIT


def as_numbers(x: Value, y: Value) -> tuple[Value, Value]:
    """Operands with constants of one element as numbers, where they do not add an axis: kernels
    have numbers in their code, where constants of a shape are arguments.

    A real zero is an argument, since TVM takes x * 0 for 0 where x is infinite or NaN as well, and
    x + 0 for x where x is -0.
    """
    return _as_number(x, y), _as_number(y, x)


def _as_number(value: Value, beside: Value) -> Value:
    if not isinstance(value, Known) or value.symbolic or value.data.size != 1:
        return value
    if isinstance(beside, Known) or len(value.shape) > len(beside.shape):
        return value
    argument = is_float(value.dtype) and not value.data.any() and beside.shape
    return Known.of(value.data.reshape((1,) if argument else ()), value.dtype)


def _few(*values: Known) -> bool:
    """True if their elementwise result may consist of symbols. A dim beside a table of constants
    (`positions < length`) makes data, which the compiled program computes.
    """
    size = int(np.prod(np.broadcast_shapes(*(value.shape for value in values))))
    return size <= MAX_SYMBOLS or any(
        value.symbolic and value.data.size > MAX_SYMBOLS for value in values
    )


def map_symbols(b: Builder, function: Callable[..., Any], *values: Known, dtype: str) -> Known:
    """Apply a function of extents to broadcast arrays of them, simplifying each result."""
    arrays = np.broadcast_arrays(*(_boxed(value) for value in values))
    out = np.empty(arrays[0].shape, dtype=object)
    for position in np.ndindex(out.shape):
        out[position] = b.facts.simplify(function(*(ex.plain(array[position]) for array in arrays)))
    return Known.of(out, dtype)


def _boxed(value: Known) -> np.ndarray[Any, Any]:
    if value.symbolic:
        return value.data
    boxed = np.empty(value.data.shape, dtype=object)
    for position in np.ndindex(boxed.shape):
        boxed[position] = value.data[position].item()
    return boxed


def unary(
    b: Builder,
    x: Value,
    emit: Callable[[relax.Expr], relax.Expr],
    *,
    numpy: Callable[[Any], Any] | None = None,
    symbolic: Callable[[Any], Any] | None = None,
    dtype: str | None = None,
) -> Value:
    """A unary operator, with the same foldings as `binary`."""
    result = dtype or x.dtype
    if isinstance(x, Known):
        if not x.symbolic and numpy is not None and x.data.size <= FOLD_LIMIT:
            with np.errstate(all="ignore"):
                return Known(np.asarray(numpy(x.data)).astype(np.dtype(result)), result)
        if x.symbolic and symbolic is not None:
            return map_symbols(b, symbolic, x, dtype=result)
    tensor = b.tensor(x)
    return b.emit(emit(tensor.expr), tensor.shape)


def add(b: Builder, x: Value, y: Value) -> Value:
    """x + y."""
    return binary(b, *as_numbers(x, y), relax.op.add, numpy=np.add, symbolic=ex.add)


def subtract(b: Builder, x: Value, y: Value) -> Value:
    """x - y."""
    return binary(b, *as_numbers(x, y), relax.op.subtract, numpy=np.subtract, symbolic=ex.sub)


def multiply(b: Builder, x: Value, y: Value) -> Value:
    """x * y."""
    return binary(b, *as_numbers(x, y), relax.op.multiply, numpy=np.multiply, symbolic=ex.mul)


def divide(b: Builder, x: Value, y: Value) -> Value:
    """x / y of floats; `division.divide` has integers too."""
    assert not is_integer(x.dtype), x.dtype
    x, y = as_numbers(x, y)
    if not isinstance(x, Known) and isinstance(y, Known) and not (y.symbolic or y.shape or y.data):
        # TVM refuses to divide by a number that it knows to be zero. A product with infinity
        # is the same for every dividend: infinite with both signs' product, NaN for 0 and NaN.
        infinity = np.copysign(np.inf, y.data.astype("float64"))
        return multiply(b, x, Known.of(np.asarray(infinity), y.dtype))
    return binary(
        b, x, y, relax.op.divide, numpy=np.divide, symbolic=lambda p, q: _symbolic_true_div(p, q)
    )


def _symbolic_true_div(p: Any, q: Any) -> Any:
    if isinstance(q, (int, float)) and not isinstance(p, (int, float)):
        return p / tirx.const(q, p.ty.dtype)
    return p / q


def compare(b: Builder, x: Value, y: Value, name: str) -> Value:
    """x <name> y with name one of equal, not_equal, less, less_equal, greater, greater_equal; gives
    bool.
    """
    if x.dtype == "bool":
        # TVM's code generator compares booleans as floats.
        x, y = cast(b, x, "int8"), cast(b, y, "int8")
    if is_float(x.dtype) and name in _REFLEXIVE and _same(x, y):
        # TVM takes every number to be equal to itself, NaN too.
        return (
            _is_nan(b, x) if name == "not_equal" else unary(b, _is_nan(b, x), relax.op.logical_not)
        )
    emit = {"equal": relax.op.equal, "not_equal": _not_equal, "less": relax.op.less,
    "less_equal": relax.op.less_equal,
            "greater": relax.op.greater, "greater_equal": relax.op.greater_equal}[name]  # fmt: skip

    def symbolic(p: Any, q: Any) -> Any:
        condition = getattr(ex, name)(p, q)
        decided = b.facts.decide(condition)
        return condition if decided is None else decided

    return binary(b, x, y, emit, numpy=getattr(np, name), symbolic=symbolic, dtype="bool")


def _same(x: Value, y: Value) -> bool:
    return isinstance(x, Tensor) and isinstance(y, Tensor) and x.expr.same_as(y.expr)


def _is_nan(b: Builder, x: Value) -> Value:
    # TVM has no isnan of bfloat16.
    return unary(b, cast(b, x, "float32") if x.dtype == "bfloat16" else x, relax.op.isnan)


def _not_equal(x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """x != y, true where one of both is NaN: TVM's own comparison is not."""
    return relax.op.logical_not(relax.op.equal(x, y))


def where(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    """x where the condition (bool) holds, else y; all three broadcast."""
    if isinstance(condition, Known) and isinstance(x, Known) and isinstance(y, Known):
        if not (condition.symbolic or x.symbolic or y.symbolic):
            return Known(np.where(condition.data, x.data, y.data), x.dtype)
        if _few(condition, x, y):
            return map_symbols(b, ex.select, condition, x, y, dtype=x.dtype)
    (c, p, q), shape = align(b, condition, x, y)
    return b.emit(relax.op.where(c.expr, p.expr, q.expr), shape)


def cast(b: Builder, x: Value, dtype: str) -> Value:
    """Elements converted to `dtype`: floats to integers truncate, numbers to bool compare with
    zero.
    """
    if x.dtype == dtype:
        return x
    if isinstance(x, Known) and not x.symbolic and x.data.size <= FOLD_LIMIT:
        with np.errstate(all="ignore"):
            return Known(x.data.astype(np.dtype(dtype)), dtype)
    if isinstance(x, Known) and x.symbolic:
        return map_symbols(b, lambda item: _cast_symbol(item, dtype), x, dtype=dtype)
    tensor = b.tensor(x)
    if dtype == "bool":
        zero = relax.const(np.zeros((), np.dtype(x.dtype)), x.dtype)
        return b.emit(_not_equal(tensor.expr, zero), tensor.shape)
    return b.emit(relax.op.astype(tensor.expr, dtype), tensor.shape)


def _cast_symbol(item: Any, dtype: str) -> Any:
    """Integers of any width are carried as int64 expressions: extents do not overflow."""
    if is_integer(dtype):
        if not isinstance(item, PrimExpr):
            return int(item)
        return item if item.ty.dtype == "int64" else _to_int(item)
    if dtype == "bool":
        return ex.not_equal(item, 0)
    return ex.prim(item, dtype)


def _to_int(item: Any) -> Any:
    """A float expression as an integer one; a cast of an integer expression and back is that
    expression.
    """
    if isinstance(item, tirx.Cast) and item.value.ty.dtype == "int64":
        return item.value
    return tirx.Cast("int64", item)
